"""`ox.device`: a device by name, with PyTorch's parts."""

from __future__ import annotations

from ox.errors import ArgumentError

KINDS = ("cpu", "cuda")


class device(str):  # PyTorch's name
    """``"cpu"``, ``"cuda"`` or ``"cuda:1"``: a string, so either may be given wherever the other is. `torch.device`.

    Args:
        type: the kind, or the whole name.
        index: which one of its kind; None is the current one.

    Raises:
        ArgumentError: no kind of device that ox runs on.
    """

    type: str
    index: int | None  # type: ignore[assignment]  # a device is no text that one would search

    def __new__(cls, type: str, index: int | None = None) -> device:
        kind, _, number = str(type).partition(":")
        if kind not in KINDS or (number and (not number.isdigit() or index is not None)):
            raise ArgumentError(f"'{type}' is not a device", expected='"cpu", "cuda" or "cuda:0"', got=repr(type))
        index = int(number) if number else index
        made = super().__new__(cls, kind if index is None or kind == "cpu" else f"{kind}:{index}")
        made.type, made.index = kind, index
        return made

    def __repr__(self) -> str:
        return f"device(type='{self.type}'{'' if self.index is None else f', index={self.index}'})"

    def __enter__(self) -> device:
        """As a context, the device of tensors that are made without `device=`: always the CPU.

        Raises:
            ArgumentError: another device.
        """
        if self.type != "cpu":
            raise ArgumentError(
                "the default device is always the CPU",
                got=f"with {self!r}",
                hint="device= where a tensor is made, and model.to(device)",
            )
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)


CPU = device("cpu")
