"""Response models: probabilities, expected scores, and what a change of metric does to their parameters."""

from concal.response.base import Derivatives, PopulationPrior, ResponseModel
from concal.response.registry import is_polytomous, make_model, model_class, model_names, register

__all__ = [
    "Derivatives",
    "PopulationPrior",
    "ResponseModel",
    "is_polytomous",
    "make_model",
    "model_class",
    "model_names",
    "register",
]
