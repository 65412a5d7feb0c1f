"""The zoo: what models of the wild are made of, each exported in about a second."""

from __future__ import annotations

import attention_encoders
import audio_models
import dense_prediction
import generative_models
import geometry_models
import graph_networks
import image_classifiers
import language_models
import sequence_models
import table_models
from architecture import Architecture

ZOO: dict[str, Architecture] = {
    **image_classifiers.MODELS,
    **dense_prediction.MODELS,
    **geometry_models.MODELS,
    **attention_encoders.MODELS,
    **language_models.MODELS,
    **sequence_models.MODELS,
    **audio_models.MODELS,
    **graph_networks.MODELS,
    **generative_models.MODELS,
    **table_models.MODELS,
}
