"""What of PyTorch ox spells differently, and what it leaves out on purpose: patterns over full names, the first match
counts."""

from __future__ import annotations


def words(text: str) -> list[str]:
    return text.split()


# Written without a docstring in PyTorch, yet in every script.
ALSO = {
    "torch": words(
        """relu dropout layer_norm float16 float32 float64 bfloat16 half float double int8 int16 int32 int64 uint8 short
        int long bool inf nan pi e newaxis log_softmax relu_ selu celu prelu batch_norm group_norm embedding
        instance_norm max_pool1d max_pool2d max_pool3d embedding_bag lstm gru rnn_tanh lstm_cell gru_cell rms_norm
        Tensor Generator device dtype Size finfo iinfo no_grad enable_grad inference_mode set_grad_enabled autocast
        ctc_loss binary_cross_entropy_with_logits cosine_embedding_loss kl_div triplet_margin_loss bernoulli std var"""
    ),
    "torch.Tensor": words("shape dtype device grad data grad_fn is_leaf requires_grad ndim T mT nbytes itemsize"),
}

# Names that a module merely imports, or that serve PyTorch's own insides.
FOREIGN = words(
            """*.has_torch_function* *.factory_kwargs *.ScalingType *.SwizzleType
            torch.optim.lr_scheduler.Optimizer torch.optim.swa_utils.Module torch.optim.swa_utils.LRScheduler
            torch.profiler.Optimizer *.thread_safe_generator torch.profiler.register_optimizer_step_post_hook
            torch.profiler.KinetoStepTracker torch.autograd.graph.Torch* torch.func.debug_unwrap
            torch.func.rearrange torch.utils.benchmark.Call* torch.utils.benchmark.Copy*
            torch.utils.benchmark.Func* torch.utils.benchmark.Fuzz* torch.utils.benchmark.Param*
            torch.*_from_type_comment torch.parse_* torch.unify_type_list torch.import_ir* torch.get_file_path
            torch.prepare_* torch.profiler_* torch.hash_tensor""" ) SPELLED: dict[str, str] = {
            "torch.to_dlpack": "ox.from_dlpack", "torch.utils.dlpack.to_dlpack": "ox.from_dlpack", } COMPLEX =
            "complex numbers are no element type that ONNX operators compute with; `ox.fft` keeps the two parts
            in a last dimension" COMPILER = "a form for PyTorch's compiler; a recording needs none" QUANTIZED =
            "quantized tensors are no type of their own; `ox.ops.QuantizeLinear` and its like work on integers"
            LAYOUTS = "sparse tensors are COO" STORAGE = "a tensor's memory is its NumPy or CuPy array,
            `x.data`; there is no storage beneath it" BACKENDS = "ox runs on cpu and cuda" DEPRECATED = "PyTorch
            has deprecated it" RARE = "no formulation in ONNX operators yet" DETERMINISTIC = "every operator
            gives the same bits again, so there is nothing to choose" TORCHSCRIPT = "a model becomes a graph by
            `ox.export.save`" STREAMS = "CuPy owns streams and memory: `cupy.cuda`" INNER = "part of PyTorch's
            own machinery" # The first pattern that fits a full name gives the reason. REASONS: dict[str, str] =
            { **dict.fromkeys( words( """torch.complex torch.polar torch*.angle* torch*.conj torch*.conj_*
            torch*.resolve_* torch*.is_conj torch*.is_neg torch*.adjoint torch*.imag torch.view_as_complex*
            torch.view_as_real* torch.Tensor.cfloat torch.Tensor.cdouble torch.Tensor.chalf torch.real
            torch.Tensor.H torch.linalg.eig torch.linalg.eigvals torch.linalg.ldl_*"""
        ),
        COMPLEX,
    ),
    **dict.fromkeys(
        words(
            """torch.*_copy torch.Tensor.narrow_copy torch.sym_* torch.compile torch.nn.Module.compile torch.vmap_*
            torch.compiled_with_cxx11_abi torch.func.functionalize torch.func.linearize torch.empty_permuted"""
        ),
        COMPILER,
    ),
    **dict.fromkeys(
        words(
            """torch*.quantize* torch*.fake_quantize* torch*.dequantize torch.Tensor.q_* torch.Tensor.qscheme
            torch.Tensor.int_repr torch.nn.functional.scaled_* torch.nn.functional.grouped_mm"""
        ),
        QUANTIZED,
    ),
    **dict.fromkeys(
        words(
            """torch.sparse_b* torch.sparse_cs* torch.sparse_compressed_tensor torch.Tensor.to_sparse_b*
            torch.Tensor.to_sparse_cs* torch.Tensor.c*_indices torch.sparse.*emi* torch*.hspmm torch*.smm
            torch*.sspaddmm torch.Tensor.sparse_mask torch.Tensor.sparse_resize* torch.Tensor.to_padded_tensor
            torch.sparse.as_* torch.sparse.sp* torch.sparse.check_* torch.sparse.sampled_addmm"""
        ),
        LAYOUTS,
    ),
    **dict.fromkeys(
        words(
            """torch*.*storage* torch.Tensor.set_ torch.Tensor.resize_* torch.Tensor.is_shared
            torch.Tensor.share_memory_ torch.nn.Module.share_memory torch.from_file torch.Tensor.const_data_ptr
            torch.Tensor.record_stream torch.Tensor.is_pinned torch.Tensor.as_subclass torch.Tensor.module_load
            torch.Tensor.dim_order torch*.empty_strided torch.Tensor.new_empty_strided torch.Tensor.as_strided_"""
        ),
        STORAGE,
    ),
    **dict.fromkeys(
        words("torch*.ipu torch*.mtia torch*.xpu torch.Tensor.to_mkldnn torch.get_device_module torch*.vulkan"),
        BACKENDS,
    ),
    **dict.fromkeys(
        words(
            """torch.range torch.set_default_tensor_type torch*.cholesky_inverse torch*.lu torch*.triangular_solve
            torch.chain_matmul torch.testing.assert_allclose torch.nn.utils.clip_grad_norm torch.cuda.*cached
            torch.nn.functional.upsample* torch.nn.NLLLoss2d torch.nn.Module.register_backward_hook
            torch.cuda.reset_max_memory* torch*.norm_except_dim torch.functional.*"""
        ),
        DEPRECATED,
    ),
    **dict.fromkeys(
        words(
            """torch*.igamma* torch*.polygamma* torch*.mvlgamma* torch*.i0* torch.special.i1* torch.special.bessel*
            torch.special.modified* torch.special.scaled_mod* torch.special.spherical* torch.special.airy_ai
            torch.special.*polynomial* torch.special.zeta torch.special.gammainc* torch.special.multigammaln
            torch*.geqrf torch*.orgqr torch*.ormqr torch.linalg.householder_product torch*.lobpcg torch.*lowrank
            torch*.nextafter* torch*.frexp torch*.ldexp* torch.histogramdd torch*.lu_solve torch*.lu_unpack
            torch.linalg.lu* torch.linalg.tensor* torch*.index_reduce* torch*.segment_reduce"""
        ),
        RARE,
    ),
    **dict.fromkeys(
        words(
            """torch.*deterministic* torch.set_flush_denormal torch.*float32_matmul_precision torch.*warn_always*
            torch.*interop_threads torch.init_num_threads"""
        ),
        DETERMINISTIC,
    ),
    **dict.fromkeys(words("torch.fork torch.wait torch.typename torch.is_storage"), TORCHSCRIPT),
    **dict.fromkeys(
        words(
            """torch.cuda.*alloc* torch.cuda.*graph* torch.cuda.*Graph* torch.cuda.*stream* torch.cuda.*Stream*
            torch.cuda.*pool torch.cuda.*Pool torch.cuda.*handle torch.cuda.*rng* torch.cuda.*sync_debug*
            torch.cuda.*tf32* torch.cuda.*arch* torch.cuda.*gencode* torch.cuda.*ipc* torch.cuda.*peer*
            torch.cuda.cudart torch.cuda.*check* torch.cuda.*usage torch.cuda.*memory_used torch.cuda.clock_rate
            torch.cuda.power_draw torch.cuda.temperature torch.cuda.utilization torch.cuda.list_gpu*
            torch.cuda.*snapshot torch.cuda.*nested_dict torch.cuda.*host_memory* torch.cuda.*fraction
            torch.cuda.GreenContext torch.cuda.*Error torch.cuda.device_of torch.cuda.seed*
            torch.cuda.initial_seed torch.cuda.memory_summary torch.cuda.reset_accumulated*"""
        ),
        STREAMS,
    ),
    **dict.fromkeys(
        words(
            """torch.autograd.NestedIO* torch.autograd.function.*Function torch.autograd.function.FunctionMeta
            torch.autograd.enforce* torch.autograd.is_* torch.autograd.set_multi* torch.autograd.kineto*
            torch.autograd.graph.* torch.utils.checkpoint.* torch.profiler.kineto* torch.profiler.Execution*
            torch.optim.swap_in* torch.nn.LinearCrossEntropyOptions torch.nn.utils.convert_*"""
        ),
        INNER,
    ),
    **dict.fromkeys(
        words("torch.utils.data.*DataPipe torch.utils.data.Distributed* torch.nn.SyncBatchNorm torch.nn.DataParallel"),
        "training on several processes is not there yet; data pipes PyTorch has given up",
    ),
    "torch.autocast": "mixed precision is not there yet",
    "torch.utils.data.get_worker_info": "batches are made in one process yet",
    "torch.nn.functional.*_with_indices": "the plain name with `return_indices=True`",
    "torch*.nonzero_static": "a count fixed beforehand serves compilers; `nonzero`",
    "torch*.pin_memory": "arrays stay in ordinary memory",
    "torch.Tensor.map_": "slow by nature; an expression of operators",
    "torch.Tensor.apply_": "slow by nature; an expression of operators",
    "torch.*default_device": "say `device=` where a tensor is made",
    "torch.conv_tbc": "`conv1d` after a transpose",
    "torch.nn.functional.conv_tbc": "`conv1d` after a transpose",
}
