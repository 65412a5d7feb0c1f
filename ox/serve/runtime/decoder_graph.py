"""Rewrites the graph of a decoder for generation, when it is loaded; the file stays as it is.

A standard graph appends the keys and values of new tokens to those before them by Concat, which copies the whole cache
for each token, and it computes the scores of all new tokens. The rewritten graph has ONNX Runtime's
GroupQueryAttention instead, which writes new keys and values into a buffer where they belong, row by row, and computes
scores of some tokens only: of a prompt, those of its last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ox.serve.operator_kinds import KINDS
from ox.serve.runtime.node_graph import NodeGraph
from ox.serve.runtime.rotary_embedding import Rotation, find_rotation, tables

PAST = re.compile(r"past_key_values\.(\d+)\.(key|value)")
LENGTHS, TOTAL = "ox.seqlens_k", "ox.total_sequence_length"  # inputs of the rewritten graph
SCORED = "ox.scored_tokens"  # and this one
POSITIONS = "position_ids"
# Repeats each head of keys and values for its queries. Tile would repeat all of them in turn: another attention.
SPREAD = KINDS["identity"] | KINDS["reshape"] | {"Expand"}
# Whose rows follow from the rows of the first input; some are ONNX Runtime's own.
HEAD = {"MatMul", "Gemm", "MatMulNBits", "MatMulInteger", "FusedMatMul"}
# Element by element: what is chosen before is chosen after. A condition is not what is chosen from.
BY_ELEMENT = KINDS["conversion"] | KINDS["identity"] | {"Reshape"}
AFTER_HEAD = BY_ELEMENT | KINDS["pointwise"] - {"Where"}
BEFORE_HEAD = BY_ELEMENT | KINDS["quantization"]


class PatternMissing(Exception):
    """The graph is not written in a way that is known here."""


class DecoderGraph(NodeGraph):
    """A decoder's graph that can be rewritten.

    Args:
        model: is changed.

    Raises:
        PatternMissing: the graph has subgraphs.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        if any(attribute.HasField("g") for node in model.graph.node for attribute in node.attribute):
            raise PatternMissing("the graph has branches")
        super().__init__(model)
        self._rotary: tuple[str, str] | None = None  # the cosines and sines that are stored

    @property
    def pasts(self) -> list[str]:
        """Inputs of the cache."""
        return [info.name for info in self._graph.input if PAST.fullmatch(info.name)]

    def share_cache(self, rotary: int = 0) -> None:
        """Replaces the attention of all layers.

        Args:
            rotary: for so many positions, rotary embeddings become a part of the attention, if there are any; 0 for
                none.

        Raises:
            PatternMissing: an attention that is not known here.
        """
        if all(self._is_shared(name) for name in self.pasts):  # as in files of onnxruntime-genai
            self._take_counts()
            return
        self._drop_nan_guards()
        layers = sorted({int(PAST.fullmatch(name)[1]) for name in self.pasts})  # type: ignore[index]
        for layer in layers:
            self._share_layer(layer, rotary)
        self._constant("ox.merged", [0, 0, -1])
        self._remove_unused()
        self._take_positions()
        for name in self.pasts:
            if any(node.op_type != "GroupQueryAttention" for node in self._consumers.get(name, [])):
                raise PatternMissing(f"'{name}' is used beside the attention")
        self._add_counts()
        for info in (*self._graph.input, *self._graph.output):
            if info.name.startswith(("past_key_values.", "present.")):
                info.type.tensor_type.shape.dim[2].dim_param = "capacity"
        if all(entry.domain != "com.microsoft" for entry in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid("com.microsoft", 1))

    def _take_positions(self) -> None:
        """Has positions come in as an input, where the graph counts them from the length of its cache: each row has its
        own."""
        found = False
        for node in [node for node in self.nodes if node.op_type == "Range" and self._counts_cache(node.input[0])]:
            for user in list(self._consumers.get(node.output[0], [])):
                axes = self.value(user.input[1]) if user.op_type == "Unsqueeze" and len(user.input) == 2 else None
                if axes is not None and axes.tolist() == [0]:  # [1, new] for all rows
                    self.nodes = [each for each in self.nodes if each is not user]
                    self._replace(user.output[0], POSITIONS)
                    found = True
        if found and all(info.name != POSITIONS for info in self._graph.input):
            positions = helper.make_tensor_value_info(POSITIONS, TensorProto.INT64, ["batch", "new"])
            self._graph.input.append(positions)
        self._remove_unused()

    def _counts_cache(self, name: str) -> bool:
        """Whether a number is a size of the cache."""
        while (node := self.producer(name)) is not None and node.op_type in ("Gather", "Slice", "Cast", "Squeeze"):
            name = node.input[0]
        return node is not None and node.op_type == "Shape" and node.input[0] in self.pasts

    def _take_counts(self) -> None:
        """Has attention that is shared already take its lengths as inputs, instead of from a mask."""
        for node in self.nodes:
            if node.op_type == "GroupQueryAttention":
                node.input[5], node.input[6] = LENGTHS, TOTAL
        self.nodes = [node for node in self.nodes if not {LENGTHS, TOTAL}.intersection(node.output)]
        self._index()
        self._remove_unused()
        self._add_counts()

    def _add_counts(self) -> None:
        self._graph.input.append(helper.make_tensor_value_info(LENGTHS, TensorProto.INT32, ["batch"]))
        self._graph.input.append(helper.make_tensor_value_info(TOTAL, TensorProto.INT32, []))

    def choose_scores(self) -> None:
        """Computes scores of some tokens only: an input tells which, counted over the tokens of all rows. Logits become
        [chosen, vocabulary] or [1, chosen, vocabulary].

        Raises:
            PatternMissing: the scores come from something else than a product.
        """
        name, after = "logits", []
        while (node := self._producers.get(name)) is not None and node.op_type in AFTER_HEAD:
            after.append(node)
            name = next(each for each in node.input if not self._is_constant(each))
        if node is None or node.op_type not in HEAD:
            raise PatternMissing("the scores do not come from a product")
        before = node
        while (inner := self._producers.get(before.input[0])) is not None and inner.op_type in BEFORE_HEAD:
            before = inner
        states = before.input[0]
        self._constant("ox.one_row", [1, -1, 0])
        before.input[0], row, place = "ox.scored_states", "ox.states_in_one_row", self._place(before)
        self.nodes[place:place] = [
            helper.make_node("Reshape", [states, "ox.one_row"], [row], row),
            helper.make_node("Gather", [row, SCORED], ["ox.scored_states"], "ox.scored_states", axis=1),
        ]
        self._graph.input.append(helper.make_tensor_value_info(SCORED, TensorProto.INT64, ["chosen"]))
        for reshape in [node for node in after if node.op_type == "Reshape"]:  # to [batch, new, vocabulary]
            self._replace(reshape.output[0], reshape.input[0])
        next(info for info in self._graph.output if info.name == "logits").type.tensor_type.ClearField("shape")
        self._index()
        self._remove_unused()

    def join_products(self) -> None:
        """Turns Gemm between Reshapes, as of a linear layer on [batch, new, size], into MatMul, which needs none. With
        them go the operators that compute shapes."""
        self._constant("ox.merged", [0, 0, -1])
        for reshape in list(self.nodes):
            if reshape.op_type != "Reshape" or not self._flattens(reshape):
                continue
            gemms, ends = self._flat_region(reshape)
            if not gemms or not all(self._is_linear(gemm) for gemm in gemms):
                continue
            if len(self._shapes[reshape.input[0]]) == 3:
                self._replace(reshape.output[0], reshape.input[0])
            else:  # [batch, new, heads, size], of which the last two become one
                reshape.input[1] = "ox.merged"
            for gemm in gemms:
                self._to_matmul(gemm)
            for end in ends:
                self._replace(end.output[0], end.input[0])
        self._remove_unused()

    # ---- products

    def _flattens(self, reshape: NodeProto) -> bool:
        """Whether it makes rows of [batch, new, size], or of [batch, new, heads, size]."""
        shape, before = self.value(reshape.input[1]), self._shapes.get(reshape.input[0], ())
        if shape is None or len(shape) != 2 or shape[0] != -1 or len(before) not in (3, 4):
            return False
        sizes = [dim.dim_value for dim in before[2:]]
        return all(sizes) and int(np.prod(sizes)) == shape[1]

    def _flat_region(self, reshape: NodeProto) -> tuple[list[NodeProto], list[NodeProto]]:
        """What works on flattened rows from here on, and the Reshapes that end it; nothing where others do."""
        gemms: dict[int, NodeProto] = {}
        ends: dict[int, NodeProto] = {}
        names = [reshape.output[0]]
        while names:
            name = names.pop()
            if any(info.name == name for info in self._graph.output):
                return [], []
            for node in self._consumers.get(name, []):
                if node.op_type == "Reshape":
                    ends[id(node)] = node
                elif node.op_type == "Gemm" and node.input[0] == name:
                    gemms[id(node)] = node
                    names.append(node.output[0])
                elif node.op_type in KINDS["pointwise"]:
                    names.append(node.output[0])
                else:
                    return [], []
        return list(gemms.values()), list(ends.values())

    def _is_linear(self, gemm: NodeProto) -> bool:
        given = {each.name: helper.get_attribute_value(each) for each in gemm.attribute}
        usual = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1.0 and not given.get("transA", 0)
        weight = gemm.input[1]
        alone = len(self._consumers[weight]) == 1
        return usual and (not given.get("transB", 0) or (alone and self.value(weight) is not None))

    def _to_matmul(self, gemm: NodeProto) -> None:
        data, weight, *bias = gemm.input
        if any(each.name == "transB" and each.i for each in gemm.attribute):
            stored, value = self._stored[weight], self.value(weight)
            assert value is not None
            stored.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value.T), weight))
        product = f"{gemm.output[0]}.product" if bias else gemm.output[0]
        nodes = [helper.make_node("MatMul", [data, weight], [product], product)]
        if bias:
            nodes.append(helper.make_node("Add", [product, bias[0]], [gemm.output[0]], gemm.output[0]))
        place = self._place(gemm)
        self.nodes[place : place + 1] = nodes
        self._index()

    # ---- one layer

    def _share_layer(self, layer: int, rotary: int) -> None:
        keys, values = (self._append(f"past_key_values.{layer}.{kind}") for kind in ("key", "value"))
        scores, scale = self._product(keys.output[0], {*SPREAD, "Transpose"})
        result, _ = self._product(values.output[0], SPREAD)
        scale *= self._scale_between(scores.output[0], result.input[0])
        query, key = scores.input[0], keys.input[1]
        heads, size = self._dims((query, 3), (scores.input[1], 2))
        key_heads, _ = self._dims((keys.input[0], 3))
        names = {name: f"ox.attention.{layer}.{name}" for name in ("query", "key", "value", "output", "heads")}
        nodes: list[NodeProto] = []
        caches: list[str] = []
        turned = [find_rotation(self, name) for name in (query, key)] if rotary else []
        if all(turned) and turned and self._rotate(turned, rotary):  # type: ignore[arg-type]
            (query, *_, more), (key, *_) = turned  # type: ignore[misc]
            scale, caches = scale * more, ["ox.cos", "ox.sin"]
        packed = self._pack((query, key, values.input[1]), names["query"]) if caches else None
        if packed is not None:
            nodes.append(packed)
            names["key"] = names["value"] = ""  # they come with the queries
        for name, tensor in () if packed else (("query", query), ("key", key), ("value", values.input[1])):
            rows = f"{names[name]}.rows"
            nodes.append(helper.make_node("Transpose", [tensor], [rows], rows, perm=[0, 2, 1, 3]))
            nodes.append(helper.make_node("Reshape", [rows, "ox.merged"], [names[name]], names[name]))
        inputs = [names["query"], names["key"], names["value"], keys.input[0], values.input[0], LENGTHS, TOTAL, *caches]
        outputs = [names["output"], keys.output[0], values.output[0]]
        nodes.append(
            helper.make_node(
                "GroupQueryAttention", inputs, outputs, names["output"],
                domain="com.microsoft", num_heads=heads, kv_num_heads=key_heads, scale=scale,
                do_rotary=int(bool(caches)),
            )
        )  # fmt: skip
        self._constant(f"{names['heads']}.shape", [0, 0, heads, size])
        shape = [names["output"], f"{names['heads']}.shape"]
        nodes.append(helper.make_node("Reshape", shape, [names["heads"]], names["heads"]))
        last = f"ox.attention.{layer}"
        nodes.append(helper.make_node("Transpose", [names["heads"]], [result.output[0]], last, perm=[0, 2, 1, 3]))
        place = self._place(result)
        self.nodes[place : place + 1] = nodes
        self.nodes.remove(keys)
        self.nodes.remove(values)
        self._index()

    def _rotate(self, turned: Sequence[Rotation], length: int) -> bool:
        """Stores the cosines and sines of a layer, which are those of all; whether that is so."""
        query, key = turned
        sources = (query.cos, query.sin)
        if (key.cos, key.sin) != sources or key.scale != 1 or self._rotary not in (None, sources):
            return False
        if self._rotary is None:
            found = tables(self, query, length)
            if found is None:
                return False
            past = next(info for info in self._graph.input if PAST.fullmatch(info.name))
            dtype = helper.tensor_dtype_to_np_dtype(past.type.tensor_type.elem_type)  # that of the attention
            for name, array in zip(("ox.cos", "ox.sin"), found, strict=True):
                self._graph.initializer.append(numpy_helper.from_array(array.astype(dtype), name))
            self._rotary = sources
        return True

    def _drop_nan_guards(self) -> None:
        """Removes what makes 0 of rows of a softmax that see nothing: each token sees itself."""
        for where in [node for node in self.nodes if node.op_type == "Where"]:
            test = self.producer(where.input[0])
            if test is not None and test.op_type == "IsNaN" and test.input[0] == where.input[2]:
                self._replace(where.output[0], where.input[2])
                self.nodes = [node for node in self.nodes if node is not where and node is not test]
                self._index()

    def _is_shared(self, past: str) -> bool:
        return {node.op_type for node in self._consumers.get(past, [])} == {"GroupQueryAttention"}

    def _pack(self, tensors: Sequence[str], name: str) -> NodeProto | None:
        """One product for queries, keys and values, where they are three of the same states; None elsewhere."""
        products = []
        for tensor in tensors:
            node = self.producer(tensor)
            while node is not None and node.op_type in ("Reshape", "Transpose"):
                node = self.producer(node.input[0])
            if node is None or node.op_type != "MatMul":
                return None
            products.append(node)
        weights = [self.value(node.input[1]) for node in products]
        if len({node.input[0] for node in products}) != 1 or any(weight is None for weight in weights):
            return None
        whole = np.concatenate([weight for weight in weights if weight is not None], 1)
        self._graph.initializer.append(numpy_helper.from_array(whole, f"{name}.weight"))
        return helper.make_node("MatMul", [products[0].input[0], f"{name}.weight"], [name], name)

    def _append(self, past: str) -> NodeProto:
        """The Concat of a past and what is new."""
        found = [node for node in self._consumers.get(past, []) if node.op_type == "Concat"]
        if len(found) != 1 or len(found[0].input) != 2 or found[0].input[0] != past:
            raise PatternMissing(f"'{past}' is not extended by one Concat")
        axis = next(each.i for each in found[0].attribute if each.name == "axis")
        if axis not in (2, -2):
            raise PatternMissing(f"'{past}' is extended along axis {axis}")
        return found[0]

    def _product(self, name: str, between: Iterable[str]) -> tuple[NodeProto, float]:
        """The MatMul whose second factor comes from a tensor by these operators, and a factor on the way."""
        scale = 1.0
        while True:
            users = [node for node in self._consumers.get(name, []) if node.op_type != "Shape"]
            if len(users) != 1:
                raise PatternMissing(f"{len(users)} operators take '{name}'")
            node = users[0]
            factor = self.factor(node)
            if node.op_type == "MatMul" and node.input[1] == name:
                return node, scale
            if factor is None and node.op_type not in between:
                raise PatternMissing(f"{node.op_type} takes '{name}'")
            scale *= 1.0 if factor is None else factor
            name = node.output[0]

    def _scale_between(self, scores: str, chances: str) -> float:
        """The factor of scores before their softmax, whatever mask lies between."""
        scale, softmax = 1.0, False
        while scores != chances:
            nodes = self._consumers.get(scores, [])
            node = nodes[0] if len(nodes) == 1 else None
            if node is None or node.op_type not in ("Mul", "Div", "Add", "Where", "Softmax", "Cast", "Identity"):
                raise PatternMissing(f"{', '.join(each.op_type for each in nodes) or 'nothing'} takes '{scores}'")
            factor = self.factor(node)
            if node.op_type in ("Mul", "Div") and factor is None:
                raise PatternMissing(f"{node.op_type} scales '{scores}' by no constant")
            scale *= factor or 1.0
            softmax |= node.op_type == "Softmax"
            scores = node.output[0]
        if not softmax:
            raise PatternMissing("an attention without Softmax")
        return scale

    def _dims(self, *tensors: tuple[str, int]) -> tuple[int, int]:
        """The number of heads and their size, of the first tensor [batch, heads, ...] where they are known; with the
        axis of the size."""
        for name, axis in tensors:
            shape = self._shapes.get(name, ())
            if len(shape) == 4 and shape[1].dim_value > 0 and shape[axis].dim_value > 0:
                return shape[1].dim_value, shape[axis].dim_value
        raise PatternMissing(f"the heads of '{tensors[0][0]}' are not known")
