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
    """*.has_torch_function* *.factory_kwargs *.ScalingType *.SwizzleType torch.optim.lr_scheduler.Optimizer
    torch.optim.swa_utils.Module torch.optim.swa_utils.LRScheduler torch.profiler.Optimizer *.thread_safe_generator
    torch.profiler.register_optimizer_step_post_hook torch.profiler.KinetoStepTracker torch.autograd.graph.Torch*
    torch.func.debug_unwrap torch.func.rearrange torch.utils.benchmark.Call* torch.utils.benchmark.Copy*
    torch.utils.benchmark.Func* torch.utils.benchmark.Fuzz* torch.utils.benchmark.Param* torch.*_from_type_comment
    torch.parse_* torch.unify_type_list torch.import_ir* torch.get_file_path torch.prepare_* torch.profiler_*
    torch.hash_tensor"""
)

SPELLED: dict[str, str] = {}

REASONS: dict[str, str] = {}
