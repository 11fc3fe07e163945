"""The response models there are: built in, or added by another package through the entry point `concal.response`.

A package adds a model by an entry point that names a `ResponseModel` subclass decorated with `register`::

    [project.entry-points."concal.response"]
    my_model = "my_package.module:MyModel"
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple, TypeVar

from concal.errors import SpecError
from concal.response.arithmetic import log
from concal.response.base import ResponseModel, Slopes

Kernel = Callable[..., Any]
Model = TypeVar("Model", bound=ResponseModel)

_BUILT_IN = {
    "2pl": "concal.response.two_pl:TwoPL",
    "3pl": "concal.response.three_pl:ThreePL",
    "gpcm": "concal.response.gpcm:GPCM",
    "grm": "concal.response.grm:GRM",
    "beta": "concal.response.beta:Beta",
    "ordered_beta": "concal.response.ordered_beta:OrderedBeta",
}


class Options(NamedTuple):
    """What the items of a group have in common."""

    slopes: Slopes = "free"
    steps: Slopes = "free"


_SHORT = {
    "1pl": ("2pl", Options("equal")),
    "rasch": ("2pl", Options("equal")),
    "pcm": ("gpcm", Options("equal")),
    "rsm": ("gpcm", Options("equal", "equal")),
}
"""Names for a model with options of the group. A common slope, estimated, with abilities in units of their SD is the
Rasch model: a theta and a d are in logits, and a is the abilities' SD there."""


class Kernels(NamedTuple):
    """The functions compiled code calls for a model; their meaning is in `register`."""

    terms: Kernel
    extra_terms: Kernel
    curve: Kernel
    factored: bool = False
    aim: Kernel | None = None

    def log_terms(self, tag: Any, y: Any, eta: Any, par: Any) -> tuple[Any, Any, Any]:
        """Log-likelihood, d/d eta and information, whether or not the model leaves its logarithm to the caller."""
        if not self.factored:
            ll, slope, information = self.terms(tag, y, eta, par)
            return ll, slope, information
        linear, factor, slope, information = self.terms(tag, y, eta, par)
        return linear + log(factor), slope, information


_KERNELS: dict[type, Kernels] = {}


def register(
    tag_class: type,
    terms: Kernel,
    extra_terms: Kernel,
    curve: Kernel,
    factored: bool = False,
    aim: Kernel | None = None,
) -> Callable[[type[Model]], type[Model]]:
    """Class decorator: tie a model to the kernels compiled code calls for its tag.

    Parameters
    ----------
    tag_class
        The NamedTuple class of the model's `tag`; its fields are scalars the kernels may read.
    terms
        ``terms(tag, y, eta, par) -> (log-likelihood, d/d eta, expected information in eta)``.
    extra_terms
        ``extra_terms(tag, y, eta, par, out)``: the same three, and into the rows of `out` the q first derivatives in
        the kernel coordinates psi, the q informations between eta and psi, and the q(q+1)/2 informations among psi
        (lower triangle by rows).
    curve
        ``curve(tag, eta, par) -> (expected score divided by the maximum score, its derivative in eta)``.
    factored
        For speed: `terms` gives ``(l, f, d/d eta, information)`` instead, with log-likelihood l + log f and f in
        [2^-12, 2^12]. The engine multiplies eight f before it takes one logarithm.
    aim
        For models with scores in between: ``aim(tag, y, par) -> (place, information)``, a normal in eta like the
        likelihood of the score, of information 0 at an atom. Integrals over abilities look there: a precise score
        tells eta to a fraction of what examinees differ by.
    """

    def tie(model: type[Model]) -> type[Model]:
        _KERNELS[tag_class] = Kernels(terms, extra_terms, curve, factored, aim)
        return model

    return tie


def kernels(tag: Any) -> Kernels:
    """The kernels of a model, by its tag (instance or class)."""
    return _KERNELS[tag if isinstance(tag, type) else type(tag)]


def model_names() -> tuple[str, ...]:
    """Names a spec may use, built in first."""
    added = [e.name for e in entry_points(group="concal.response") if e.name not in _BUILT_IN]
    return (*_BUILT_IN, *sorted(added))


def model_class(name: str) -> type[ResponseModel]:
    """The class behind a name; an unknown name is a `SpecError` with the nearest one."""
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name].split(":")
        found: type[ResponseModel] = getattr(import_module(module), attribute)
        return found
    for entry in entry_points(group="concal.response"):
        if entry.name == name:
            loaded = entry.load()
            if not (isinstance(loaded, type) and issubclass(loaded, ResponseModel)):
                raise SpecError(f"entry point {entry.name!r} = {entry.value!r} is not a ResponseModel")
            return loaded
    near = get_close_matches(name, [*model_names(), *_SHORT], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise SpecError(f"unknown response model {name!r}; known: {', '.join([*_SHORT, *model_names()])}{hint}")


def is_polytomous(name: str) -> bool:
    """Whether items of a model have a number of categories each."""
    return model_class(_SHORT.get(name, (name, Options()))[0]).polytomous


def make_model(
    name: str, categories: int | None = None, slopes: Slopes | None = None, steps: Slopes | None = None
) -> ResponseModel:
    """An instance; `categories` exactly where the model is polytomous.

    `slopes` and `steps` say whether they are every item's own ("free") or the group's ("equal").
    """
    full, implied = _SHORT.get(name, (name, Options()))
    for what, given, own in (("slopes", slopes, implied.slopes), ("steps", steps, implied.steps)):
        if own == "equal" and given == "free":
            raise SpecError(f"response model {name!r} has equal {what}; {what} = {given!r} is model {full!r}")
    cls = model_class(full)
    option = slopes or implied.slopes
    if cls.polytomous:
        if categories is None:
            raise SpecError(f"response model {name!r} needs the number of categories")
        return cls(categories, slopes=option, steps=steps or implied.steps)  # type: ignore[arg-type, call-arg, misc]
    if steps is not None:
        raise SpecError(f"response model {name!r} has no steps, but steps = {steps!r} was given")
    if categories is not None and categories != cls().n_categories:
        raise SpecError(f"response model {name!r} takes no categories, but categories = {categories} was given")
    return cls(slopes=option)
