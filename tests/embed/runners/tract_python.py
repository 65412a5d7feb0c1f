"""tract, optimized for the sizes of the inputs. It takes inputs by position."""

import tract
from runner import Feed, Loaded, main


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    model = tract.onnx().load(path)
    for i, array in enumerate(feed.values()):
        sizes = ",".join(map(str, array.shape))
        model.set_input_fact(i, f"{sizes},{'f32' if array.dtype.kind == 'f' else 'i64'}")
    runnable = model.into_model().into_runnable()
    return lambda feed: [result.to_numpy() for result in runnable.run(list(feed.values()))]


main(tract.version(), load)
