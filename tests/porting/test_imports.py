"""Imports of PyTorch become those of ox, and no other byte changes."""

from __future__ import annotations

import pytest
from rows import rows

from ox.errors import LoadError
from ox.porting import port


@rows(
    ("before", "after"),
    [
        ("import torch", "import ox as torch"),
        ("import torch as th", "import ox as th"),
        ("import torch.nn", "import ox as torch"),
        ("import torch.nn as nn", "import ox.nn as nn"),
        ("import torch.nn.functional as F", "import ox.nn.functional as F"),
        ("import torch, os", "import ox as torch, os"),
        ("import os, torch.nn as nn, torch", "import os, ox.nn as nn, ox as torch"),
        ("from torch import nn, optim as o", "from ox import nn, optim as o"),
        ("from torch import *", "from ox import *"),
        ("from torch.utils.data import (\n    Dataset,  # torch\n    DataLoader,\n)", None),
        ("from torch.nn.modules.utils import _pair", "from ox.nn.modules.utils import _pair"),
        ("from \\\n  torch . nn import ReLU", "from \\\n  ox . nn import ReLU"),
        ("from\ttorch.nn\timport\tReLU", "from\tox.nn\timport\tReLU"),
        ("import torch . nn as nn", "import ox . nn as nn"),
        ("import torch.nn.functional as F; import torch.optim", "import ox.nn.functional as F; import ox as torch"),
        ("import torchvision", "import ox.vision as torchvision"),
        ("import torchvision.transforms as T", "import ox.vision.transforms as T"),
        ("import torchvision.transforms.functional", "import ox.vision as torchvision"),
        ("from torchvision import datasets, transforms", "from ox.vision import datasets, transforms"),
        ("from torch.utils.tensorboard import SummaryWriter", "from ox.utils.tensorboard import SummaryWriter"),
        ("from einops.layers.torch import Rearrange", "from ox.einops import Rearrange"),
        ("import einops.layers . torch as e, torch", "import ox.einops as e, ox as torch"),
        ("from functorch import vmap", "from ox.func import vmap"),
        ("def f():\n    import torch.distributed as dist  # é", "def f():\n    import ox.distributed as dist  # é"),
        ("é = 1; import torch", "é = 1; import ox as torch"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", None),
        ("if True: import torch\n", "if True: import ox as torch\n"),
    ],
)
def test_an_import_is_rewritten(before: str, after: str | None) -> None:
    expected = after or before.replace("from torch", "from ox").replace("import torch", "import ox as torch")
    ported = port(before.encode())
    assert ported.data.decode() == expected
    assert ported.imports >= 1
    again = port(ported.data)
    assert again.data == ported.data and again.imports == 0


@rows(
    ("before", "after"),
    [
        ("from torchvision.models._api import WeightsEnum", None),
        ("from torchvision.models import _api", None),
        ("import torchvision.models._api as api", None),
        ("import torch.nonsense as n, torch.nn as nn", "import torch.nonsense as n, ox.nn as nn"),
        ("import torchvision.models._api", "import ox.vision as torchvision"),
        (
            "from torchvision.models import _api, resnet18",
            "from ox.vision.models import resnet18; from torchvision.models import _api",
        ),
        (
            "if 1: from torchvision.models import resnet18 as r, _api as a, _b, resnet50, _c, _d # é\nx = 1",
            "if 1: from ox.vision.models import resnet18 as r, resnet50; "
            "from torchvision.models import _api as a, _b, _c, _d # é\nx = 1",
        ),
        (
            "from torchvision.models import (\n    _api,  # gone\n    resnet18,  # é\n    resnet50,\n    _b,\n)\nx = 1",
            "from ox.vision.models import (\n    resnet18,  # é\n    resnet50,\n); "
            "from torchvision.models import _api, _b\nx = 1",
        ),
        (
            "from torchvision.models import (\n    resnet18,  # é\n    _api,  # gone\n    _b,\n)",
            "from ox.vision.models import (\n    resnet18,  # é\n    \n); from torchvision.models import _api, _b",
        ),
        (
            "from torchvision.models import resnet18, \\\n    _api; x = 1",
            "from ox.vision.models import resnet18; from torchvision.models import _api; x = 1",
        ),
        (
            "try:\n    from torchvision.models import _api, resnet18\nexcept ImportError:\n    resnet18 = 0",
            "try:\n    from ox.vision.models import _api, resnet18\nexcept",
        ),
        (
            "try:\n    from torch.nonsense import a\nexcept ImportError:\n    a = 0",
            "try:\n    from ox.nonsense import a",
        ),
        ("try:\n    from torch.nonsense import a\nexcept OSError:\n    a = 0", None),
    ],
)
def test_what_ox_does_not_have_is_left_alone(before: str, after: str | None) -> None:
    """And listed. Where the script catches the ImportError, it gets one."""
    ported = port(before.encode())
    assert ported.data.decode().startswith(after or before)
    again = port(ported.data)
    assert again.data == ported.data and again.imports == 0
    assert ported.missing and all(each.name.startswith("torch") for each in ported.missing)


@rows(
    "text",
    [
        "",
        "from .torch import nn\n",
        "from . import torch\n",
        "from einops import rearrange\nimport einops\nfrom einops.layers.torch_like import x\n",
        "import torchmetrics\nimport my.torch\n",
        "x = 'import torch'\n# import torch\n",
        "importlib.import_module('torch.nn')\n",
        "import ox as torch\n",
    ],
)
def test_what_is_no_import_of_pytorch_stays(text: str) -> None:
    ported = port(text.encode())
    assert ported.data.decode() == text and ported.imports == 0


@rows(
    "text",
    [
        "import torch\r\nx = '''a\r\nb'''\r\n",
        "import torch\rimport torch.nn as nn\r",
        "import torch\n\n\n  \n\t# end without a line end",
        "\f\nimport torch\nx = 'a\x0cb\x1c\u2028'\n",
        "'''\u2028'''; import torch\n",
        "if 1:\n\timport torch\n\tx=1 ;y  =  2\n",
    ],
)
@rows("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_spaces_stay(text: str, mark: bytes) -> None:
    expected = text.replace("import torch.nn", "import ox.nn").replace("import torch", "import ox as torch")
    assert port(mark + text.encode()).data == mark + expected.encode()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1251", "utf-8", "shift_jis"])
def test_the_encoding_stays(encoding: str) -> None:
    word = {"latin-1": "Größe", "cp1251": "размер", "utf-8": "Größe 大", "shift_jis": "大きさ"}[encoding]
    text = f"#!/usr/bin/env python\n# -*- coding: {encoding} -*-\n# {word}\nx = '{word}'; import torch\n"
    assert port(text.encode(encoding)).data == text.replace("import torch", "import ox as torch").encode(encoding)


@rows(
    ("data", "message"),
    [
        (b"import torch\nprint 'x'\n", "net.py is Python 2\n  in +net.py:2:1"),
        (b"try:\n    pass\nexcept ValueError, e:\n    pass\n", "net.py is Python 2"),
        (b"import torch\ndef f(:\n", "net.py is no Python 3\n  in +net.py:2:7"),
        (b"x = '\xff'\n", "no text in its encoding"),
        (b"# coding: nothing\n", "no text in its encoding"),
        (b"x = '\0'\n", "no Python 3"),
        (b"(" * 5000, "no Python 3"),
    ],
)
def test_what_is_no_python_3_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        port(data, "net.py")
