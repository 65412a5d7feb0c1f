"""OpenCV's DNN module."""

import cv2
import numpy as np
from runner import Feed, Loaded, main


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    net = cv2.dnn.readNetFromONNX(path)

    def run(feed: Feed) -> list[np.ndarray]:
        for name, array in feed.items():
            net.setInput(array, name)
        return list(net.forward(net.getUnconnectedOutLayersNames()))

    return run


main(cv2.__version__, load)
