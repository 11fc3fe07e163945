"""The programme's specification: bank.toml -> a validated, frozen `Spec`. Every default lives here."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from concal.errors import SpecError
from concal.response import ResponseModel, make_model


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class BankSpec(_Section):
    """What the programme is."""

    name: str = Field("item bank", description="A title for people.")
    reference: str | None = Field(None, description="Period that sets the metric; default: the first one added.")
    dimensions: tuple[str, ...] = Field(description="Names of the latent dimensions, at least one.", min_length=1)


class GroupSpec(_Section):
    """One item group: a task type with its response model and its population model."""

    model: str = Field(description="Response model: 2pl, 3pl, gpcm, grm, beta, ordered_beta or one that was added.")
    dimension: str = Field(description="The latent dimension the group's items load on.")
    categories: int | None = Field(None, ge=2, le=64, description="Number of score categories (gpcm, grm).")
    features: str = Field("~ 1", description="Formula of the item features that predict xi; the intercept is implied.")

    @property
    def response_model(self) -> ResponseModel:
        """The response model as an object."""
        return make_model(self.model, self.categories)


class DataSpec(_Section):
    """How to read imperfect data."""

    duplicates: Literal["error", "first", "last", "mean"] = Field(
        "error", description="Several responses of one examinee to one item."
    )
    returning: Literal["earlier", "later", "error"] = Field(
        "earlier", description="Examinees seen in an earlier period: which period keeps their responses."
    )
    unseen_level: Literal["error", "mean"] = Field(
        "error", description="A category of a feature that no earlier period had: refuse, or use the population mean."
    )
    few_responses: int = Field(5, ge=0, description="Items with fewer responses than this are listed.")


class CalibrationSpec(_Section):
    """How one period is sampled."""

    chains: int = Field(8, ge=2, le=16, description="Chains; the engine runs them side by side in SIMD lanes.")
    draws: int = Field(1000, ge=100, description="Draws kept in all, after thinning.")
    seed: int = Field(20261, ge=0, lt=2**63, description="Seed; the same seed and data give the same draws.")
    max_rhat: float = Field(1.02, gt=1.0, description="Target: R-hat of every population parameter.")
    min_ess: float = Field(400.0, gt=0, description="Target: bulk ESS of every population parameter.")
    max_item_rhat: float = Field(1.05, gt=1.0, description="Target: R-hat of items ...")
    item_share: float = Field(0.995, gt=0, le=1, description="... for this share of them.")
    max_sweeps: int = Field(20_000, ge=100, description="Stop after this many sweeps a chain.")
    max_minutes: float | None = Field(None, gt=0, description="Stop after this long, converged or not.")
    tau: float = Field(0.01, gt=0, description="Hyperprior precision: beta ~ N(0, I / tau) on standardised features.")
    threads: int | None = Field(None, ge=1, description="Threads; default all cores. The draws do not depend on it.")


class LinkingSpec(_Section):
    """How a period is put on the reference metric."""

    method: Literal["haebara", "stocking_lord", "mean_mean", "mean_sigma", "log_mean_mean"] = "haebara"
    loss: Literal["pseudo_huber", "squared", "power"] = "pseudo_huber"
    delta: float = Field(0.05, gt=0, description="Where the pseudo-Huber loss turns from square to absolute.")
    power: float = Field(2.0, gt=0, le=2, description="Loss (z^2 + eps)^(power/2) when loss = power.")
    eps: float = Field(1e-4, ge=0)
    grid_metric: Literal["ref", "focal", "symmetric"] = "ref"
    nodes: int = Field(61, ge=5, description="Quadrature nodes.")
    node_range: float = Field(6.0, gt=0, description="Nodes span [-range, range], with normal weights.")
    weights: Literal["responses", "unit"] = Field("responses", description="Weight of an anchor.")
    max_rhat: float = Field(1.05, gt=1.0, description="Anchors above this R-hat in either period are dropped.")
    purify_share: float = Field(0.10, ge=0, lt=0.5, description="Share of anchors a purification round may drop.")
    purify_rounds: int = Field(5, ge=0)
    min_anchors: int = Field(10, ge=2, description="Fewer per dimension: link through the consensus or a chain.")
    draws: int | None = Field(None, ge=50, description="Linked draws; default all kept draws (the paper used 200).")


class ConsensusSpec(_Section):
    """How periods are combined."""

    method: Literal["analytic", "joint"] = "analytic"
    draws: int = Field(2000, ge=1, description="Consensus draws sampled on request.")
    finite_draw_correction: bool = True
    half_life: float | None = Field(None, gt=0, description="Periods after which old information counts half.")
    tilt: int = Field(1, ge=0, le=4, description="Tilting passes of the joint method.")
    drift_fdr: float = Field(0.05, gt=0, lt=1, description="False discovery rate of the drift list.")
    seed: int = Field(20262, ge=0, lt=2**63)


class Spec(_Section):
    """A programme: dimensions, item groups, and how each stage works.

    Examples
    --------
    >>> spec = Spec.parse({"bank": {"dimensions": ["reading"]},
    ...                    "groups": {"vocabulary": {"model": "2pl", "dimension": "reading"}}})
    >>> spec.groups["vocabulary"].response_model.parameters
    ('d', 'log_a')
    """

    bank: BankSpec
    groups: dict[str, GroupSpec] = Field(min_length=1)
    data: DataSpec = Field(default_factory=lambda: DataSpec())
    calibration: CalibrationSpec = Field(default_factory=lambda: CalibrationSpec())
    linking: LinkingSpec = Field(default_factory=lambda: LinkingSpec())
    consensus: ConsensusSpec = Field(default_factory=lambda: ConsensusSpec())

    @model_validator(mode="after")
    def _check(self) -> Spec:
        for name, group in self.groups.items():
            if group.dimension not in self.bank.dimensions:
                near = get_close_matches(group.dimension, self.bank.dimensions, n=1, cutoff=0)
                raise ValueError(
                    f"groups.{name}.dimension: {group.dimension!r} is not one of bank.dimensions; nearest: {near[0]!r}"
                )
        return self

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Spec:
        """Validate plain data (what tomllib gives)."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(str(error)) from None

    @classmethod
    def read(cls, path: str | Path) -> Spec:
        """Read a bank.toml."""
        with Path(path).open("rb") as file:
            return cls.parse(tomllib.load(file))

    def write(self, path: str | Path) -> None:
        """Write as TOML; reading it back gives an equal spec."""
        Path(path).write_text(tomli_w.dumps(self.model_dump(mode="json", exclude_none=True)), encoding="utf-8")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON schema of bank.toml, for editors."""
        return cls.model_json_schema()
