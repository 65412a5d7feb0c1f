"""CPU time per image of common transforms, compared with the same code written with Pillow and NumPy.

Processor time of one process, so that a busy machine says the same: 224 pixels from JPEG files of 500 × 375, with and
without changes of colour; 32 pixels from bytes in memory, one image after the other and 256 at once.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sides
from PIL import Image, ImageEnhance

MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


def files() -> list[io.BytesIO]:
    """Eight JPEG files, smooth with some noise, as photographs are."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(8):
        small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize(
            (500, 375), Image.Resampling.BICUBIC
        )
        noisy = (np.asarray(small) + rng.normal(0, 6, (375, 500, 3))).clip(0, 255).astype(np.uint8)
        made.append(io.BytesIO())
        Image.fromarray(noisy).save(made[-1], "JPEG", quality=90)
    return made


def small() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (256, 32, 32, 3), np.uint8)


def cost(run: Callable[[], Any], images: int, rounds: int) -> float:
    """Microseconds an image: the best of five."""
    run()
    times = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(rounds):
            run()
        times.append(time.process_time() - start)
    return min(times) / rounds / images * 1e6


def _figures(
    read: Callable[[Any], Any], usual: Any, coloured: Any, tiny: Any, batch: Callable[[Any], Any]
) -> dict[str, float]:
    jpegs, pixels = files(), small()
    images = [read(file) for file in jpegs]
    singles = [pixels[i] for i in range(64)]
    return {
        "read a JPEG, 500 × 375": cost(lambda: [read(file) for file in jpegs], 8, 3),
        "224: crop, flip, normalize": cost(lambda: [usual(image) for image in images], 8, 3),
        "224: the same and jittered colours": cost(lambda: [coloured(image) for image in images], 8, 2),
        "32: crop, flip, normalize": cost(lambda: [tiny(image) for image in singles], 64, 3),
        "32: the same, 256 at once": cost(lambda: batch(pixels), 256, 3),
    }


def run_ox() -> dict[str, float]:
    from ox.data import transforms as T
    from ox.data.datasets import read_image

    end = [T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)]
    jitter = T.ColorJitter(0.4, 0.4, 0.4, 0.1)
    tiny = T.Compose([T.RandomCrop(32, padding=4), *end])
    return _figures(
        read_image,
        T.Compose([T.RandomResizedCrop(224), *end]),
        T.Compose([T.RandomResizedCrop(224), jitter, *end]),
        tiny,
        tiny.batch,
    )


def run_pillow() -> dict[str, float]:
    def end(image: Any) -> Any:
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        values = np.asarray(image).transpose(2, 0, 1).astype(np.float32) / np.float32(255)
        return (values - MEAN[:, None, None]) / STD[:, None, None]

    def cropped(image: Any) -> Any:
        while True:
            area, shape = image.width * image.height * random.uniform(0.08, 1), np.exp(random.uniform(-0.288, 0.288))
            width, height = round((area * shape) ** 0.5), round((area / shape) ** 0.5)
            if width <= image.width and height <= image.height:
                break
        x, y = random.randint(0, image.width - width), random.randint(0, image.height - height)
        return image.crop((x, y, x + width, y + height)).resize((224, 224), Image.Resampling.BILINEAR)

    def jittered(image: Any) -> Any:
        def turned(image: Any) -> Any:
            hue, *others = image.convert("HSV").split()
            step = random.randint(-25, 25)
            hue = hue.point([(level + step) % 256 for level in range(256)])
            return Image.merge("HSV", (hue, *others)).convert("RGB")

        changes = [
            *(
                lambda image, kind=kind: kind(image).enhance(random.uniform(0.6, 1.4))
                for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
            ),
            turned,
        ]
        random.shuffle(changes)
        for change in changes:
            image = change(image)
        return image

    def tiny(pixels: Any) -> Any:
        wide = Image.new("RGB", (40, 40))
        wide.paste(Image.fromarray(pixels), (4, 4))
        x, y = random.randint(0, 8), random.randint(0, 8)
        return end(wide.crop((x, y, x + 32, y + 32)))

    return _figures(
        lambda file: Image.open(file).convert("RGB"),
        lambda image: end(cropped(image)),
        lambda image: end(jittered(cropped(image))),
        tiny,
        lambda many: np.stack([tiny(image) for image in many]),
    )


if __name__ == "__main__":
    sides.main({"ox": run_ox, "pillow": run_pillow}, unit="µs of processor time an image")
