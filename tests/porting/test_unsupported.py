"""What a script takes from PyTorch and ox has not is found, and nothing else."""

from __future__ import annotations

import textwrap

import pytest
from rows import rows

from ox.porting import Source, find_missing
from ox.porting.names import MODULES, existing_prefix, left_out, way_out


def names(text: str) -> list[str]:
    source = Source(textwrap.dedent(text).encode(), "net.py")
    return [f"{m.line}:{m.column} {m.name}{' ?' if m.guarded else ''}" for m in find_missing(source)]


@rows(
    ("text", "expected"),
    [
        ("import torch\ntorch.polar(1, 2)", ["2:1 torch.polar"]),
        ("import torch as th\nx = [th.polar]", ["2:6 torch.polar"]),
        ("import torch\n'é', torch.polar", ["2:6 torch.polar"]),
        ("from torch import polar, nn\npolar(1)", ["1:19 torch.polar"]),
        ("from torch import (\n    nn,\n    polar,\n)", ["3:5 torch.polar"]),
        ("import torch.nothing.at.all as x\nx.y", ["1:8 torch.nothing.at.all"]),
        ("from torch.nothing import x\nx.y", ["1:1 torch.nothing"]),
        ("import torch.nn.functional as F\nF.nothing.more", ["2:1 torch.nn.functional.nothing"]),
        ("import torch.nn\ntorch.nn.nothing()", ["2:1 torch.nn.nothing"]),
        ("import torch\nnn = torch.nn\nnn.nothing", ["3:1 torch.nn.nothing"]),
        ("import torch\ntorch.Tensor.nothing", ["2:1 torch.Tensor.nothing"]),
        ("import ox as torch\ntorch.polar", ["2:1 ox.polar"]),
        ("import torch_geometric.nn as g\ng.GCN", ["1:8 torch_geometric"]),
        ("from pytorch_lightning import Trainer", ["1:1 pytorch_lightning"]),
        ("import torch\ndef f(x: torch.nothing = torch.nil) -> torch.no: ...",
         ["2:10 torch.nothing", "2:26 torch.nil", "2:40 torch.no"]),
        ("import torch\nclass A(torch.nothing):\n    x = torch.nil\n    def f(self): return torch.no",
         ["2:9 torch.nothing", "3:9 torch.nil", "4:25 torch.no"]),
        ("import torch\n@torch.nothing\ndef f(): ...", ["2:2 torch.nothing"]),
        ("def f():\n    torch.polar\nimport torch", ["2:5 torch.polar"]),
        ("import torch\nf = lambda x: torch.polar(x)\n[torch.polar for x in y]",
         ["2:15 torch.polar", "3:2 torch.polar"]),
        ("import torch\nmatch x:\n    case torch.nothing: ...", ["3:10 torch.nothing"]),
        ("import torch\nf'{torch.polar}'", ["2:4 torch.polar"]),
        ("from torch.nn import *\nLinear, print, __file__, Nothing", ["2:26 torch.nn.Nothing"]),
        ("from torch.nn import *\nfrom torch import *\ndef f(a, *b): return [a, b, nil]",
         ["3:29 torch.nn.nil or torch.nil"]),
        ("from torch import *\nfrom mine import *\npolar(helper)", ["3:1 torch.polar"]),
    ],
)  # fmt: skip
def test_it_is_found_where_it_is(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@rows(
    "text",
    [
        "import torch\ntorch.relu(torch.ones(2)).sum().item()",
        "import torch\ntorch.float32.itemsize.x",
        "import torch\ntorch.backends.cudnn.benchmark = True",
        "import torch\ntorch.nothing = 3",
        "from torch.nn import *\nfrom mine import *\nhelper(Linear(1, 2))",
        "from mine import *\nNothing",
        "from torch.utils import data\ndef f():\n    for data in x:\n        data.foo",
        "from torch import optim\ndef f(optim): optim.foo",
        "from torch import nn\nf = lambda nn: nn.foo",
        "from torch import nn\n[nn.foo for nn in x]",
        "from torch import nn\nfor nn in x: pass\nnn.foo",
        "from torch import nn\ndef f():\n    with x as nn: nn.foo",
        "from torch import nn\ndef f():\n    try: pass\n    except E as nn: nn.foo",
        "from torch import nn\nnn = Mine()\nnn.foo",
        "try:\n    from torch import nn\nexcept ImportError:\n    import mine as nn\nnn.foo",
        "from torch import nn\ndef f():\n    def nn(): ...\n    nn.foo",
        "class A:\n    import torch\n    def f(self): torch.foo",
        "torch.foo",
        "import torch\nclass B(torch.nn.Module):\n    def f(self): self.foo.bar",
        "import torch\nif hasattr(torch, 'xpu') and torch.xpu.is_available(): ...",
        "import torch\nx = torch.foo() if hasattr(torch, 'foo') else None",
        "import torch\nif hasattr(torch, 'foo'):\n    torch.foo.bar()",
        "import torch\nfoo = getattr(torch, 'foo', None)",
    ],
)
def test_nothing_is_found_where_nothing_is_missing(text: str) -> None:
    assert names(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("try:\n    from apex import amp\nexcept ImportError:\n    amp = None\namp.foo", ["2:5 apex ?"]),
        ("try:\n    import torch.nothing as n\nexcept Exception:\n    n = None\nn.foo", ["2:12 torch.nothing ?"]),
        ("import torch\ntry:\n    torch.foo\nexcept AttributeError: ...", ["3:5 torch.foo ?"]),
        ("import torch\ntry:\n    torch.foo\nexcept ValueError: ...", ["3:5 torch.foo"]),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import nothing",
            ["3:23 torch.nothing ?"],
        ),
    ],
)
def test_what_the_script_guards_is_marked(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_methods_that_only_tensors_have() -> None:
    script = """
        import torch, re
        def f(x, storage):
            x.resize_as_(x)
            x.sum(0).share_memory_()
            y = x.to("cpu")
            y.storage()
            self.storage()
            super().storage()
            re.storage()
            storage["x"].values()
            {}.get(3).index(2)
    """
    assert names(script) == [
        "4:5 torch.Tensor.resize_as_",
        "5:5 torch.Tensor.share_memory_",
        "7:5 torch.Tensor.storage",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\nif torch.__version__ > '1.8': ...", ["2:4 torch.__version__"]),
        ("if x.dtype.is_floating_point: ...", ["1:4 torch.dtype.is_floating_point"]),
        ("if x.is_floating_point(): ...", []),
        ("str(x.dtype) == 'torch.float32'", ['1:17 "torch.float32"']),
        ("x.type() == 'torch.FloatTensor'; 'float32'; 'torch.save'", []),
    ],
)
def test_what_says_something_else(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_libraries_that_need_pytorch_are_named() -> None:
    names = (
        "transformers", "peft", "sentence_transformers", "captum", "monai", "albumentations", "timm", "lightning",
        "trl", "open_clip", "ultralytics", "skorch",
    )  # fmt: skip
    missing = find_missing(Source(f"import {', '.join(names)}".encode(), "net.py"))
    assert {each.name for each in missing} == set(names) and all(each.hint for each in missing)
    (found,) = find_missing(Source(b"from albumentations.pytorch import ToTensorV2", "net.py"))
    assert "NumPy images work as they are" in found.hint


def test_own_packages_are_no_libraries() -> None:
    source = Source(b"import timm, apex\nfrom timm.models import x\n", "net.py")
    assert [each.name for each in find_missing(source, {"timm"})] == ["apex"]


def test_the_way_out() -> None:
    assert "ox.export.save" in way_out("torch.onnx.nothing")
    assert "complex" in way_out("torch.view_as_real") and "complex" in way_out("ox.linalg.eig")
    assert "several processes" in way_out("apex")
    assert way_out("torch.nn.functional.relu7") == "perhaps torch.nn.functional.relu"
    assert way_out("torch._C._nn") == "part of PyTorch's own machinery"
    assert way_out("torch.xyzzy").startswith("ox has no replacement")


def test_every_package_has_a_room_and_every_left_out_name_is_none() -> None:
    for package in MODULES:
        assert existing_prefix(package) == package
    assert len(left_out()) > 200 and all(name.startswith("torch") and why for name, why in left_out().items())
    assert existing_prefix("torch.nn.functional.relu.__name__.x") == "torch.nn.functional.relu.__name__.x"
