"""The programme's specification: bank.toml -> a validated, frozen `Spec`. Every default lives here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from concal.errors import SpecError, first_few
from concal.formula import parse_formula
from concal.names import group_name_problem, safe_name_problem, shown_name_problem, split_stratum
from concal.response import ResponseModel, is_polytomous, make_model

MOST_CATEGORIES = 64


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class BankSpec(_Section):
    """What the programme is."""

    name: str = Field(default="item bank", description="A title for people.")
    reference: str | None = Field(
        default=None, description="Period that sets the metric; default: the first one added."
    )
    dimensions: tuple[str, ...] = Field(description="Names of the latent dimensions, at least one.", min_length=1)


class GroupSpec(_Section):
    """One item group: a task type with its response model and its population model."""

    model: str = Field(
        description="Response model: 1pl (or rasch), 2pl, 3pl, pcm, rsm, gpcm, grm, beta, ordered_beta or one that was "
        "added."
    )
    dimension: str = Field(description="The latent dimension the group's items load on.")
    categories: int | None = Field(
        default=None,
        ge=2,
        le=MOST_CATEGORIES,
        description="Number of score categories (gpcm, grm) of items that do not have their own: a column categories "
        "in the item table, or, where the group says none, one more than the item's max_score.",
    )
    max_score: float | None = Field(
        default=None,
        gt=0,
        description="What scores are out of (100 for percent, points of a task); a column max_score in the item table "
        "says it item by item. Default: the response model's own maximum.",
    )
    slopes: Literal["free", "equal"] | None = Field(
        default=None,
        description="free: every item its own slope (the default); equal: one for all items of the group, as in 1pl.",
    )
    steps: Literal["free", "equal"] | None = Field(
        default=None,
        description="Steps of gpcm and grm. free: every item its own (the default); equal: the same for all items of "
        "the group with as many categories, a rating scale.",
    )
    features: str = Field(
        default="~ 1", description="Formula of the item features that predict xi; the intercept is implied."
    )

    @property
    def response_model(self) -> ResponseModel:
        """The response model as an object; of items without their own number of categories."""
        return make_model(self.model, self.categories, self.slopes, self.steps)

    @property
    def polytomous(self) -> bool:
        """Whether its items may differ in their number of categories."""
        return is_polytomous(self.model)

    @property
    def kernel_model(self) -> ResponseModel:
        """A model with the kernels of all its items."""
        return self.response_model if self.categories or not self.polytomous else self.of(3).response_model

    def of(self, categories: int | None) -> GroupSpec:
        """The group as its items with so many categories see it; None: those without a number of their own."""
        return self if categories is None else self.model_copy(update={"categories": categories})


class DataSpec(_Section):
    """How to read responses as they come."""

    person_id: str = Field(default="person_id", min_length=1, description="Column of the examinees' ids.")
    item_id: str = Field(default="item_id", min_length=1, description="Column of the items' ids (long tables).")
    score: str = Field(default="score", min_length=1, description="Column of the scores (long tables).")
    person_group: str = Field(
        default="person_group",
        min_length=1,
        description="Column of examinee groups where there is one (language, grade): each has its ability mean and SD.",
    )
    reference_group: str | None = Field(
        default=None, description="Examinee group that sets a period's metric; default: the period's largest."
    )
    ignore: tuple[str, ...] = Field(default=(), description="Columns of wide tables that are no items.")
    missing: Literal["skip", "error"] = Field(
        default="skip", description="A score that is empty, NA or NaN: a response that was not given, or refused."
    )
    duplicates: Literal["error", "first", "last", "mean"] = Field(
        default="error", description="Several responses of one examinee to one item."
    )
    returning: Literal["earlier", "error"] = Field(
        default="earlier",
        description="Examinees seen in an earlier period: their responses count there and not again, or are refused.",
    )
    unseen_level: Literal["error", "mean"] = Field(
        default="error",
        description="A category of a feature that no earlier period had: refuse, or use the population mean.",
    )
    few_responses: int = Field(default=5, ge=0, description="Items with fewer responses than this are listed.")


class CalibrationSpec(_Section):
    """How one period is sampled."""

    chains: int = Field(
        default=8,
        ge=2,
        le=8,
        description="Chains; the engine runs eight side by side in SIMD lanes, fewer cost the same.",
    )
    draws: int = Field(default=1000, ge=100, description="Draws kept in all, after thinning.")
    seed: int = Field(default=20261, ge=0, lt=2**63, description="Seed; the same seed and data give the same draws.")
    prior: Literal["population", "bank"] = Field(
        default="population",
        description="Items' priors: the period's own population model, or what the bank knows about them already (not "
        'with consensus.method = "paper").',
    )
    mean_error: float = Field(
        default=0.05, gt=0, description="Target: Monte Carlo error of 99 % of the items' posterior means, in their SDs."
    )
    sd_error: float = Field(default=0.03, gt=0, description="Target: the same of their posterior SDs, relative.")
    max_rhat: float = Field(default=1.05, gt=1.0, description="Target: R-hat of every population parameter.")
    min_ess: float | None = Field(
        default=None,
        gt=0,
        description="Target: bulk ESS of every population parameter, in the place of the errors of what is delivered.",
    )
    max_item_rhat: float = Field(default=1.1, gt=1.0, description="Target: R-hat of items ...")
    item_share: float = Field(default=0.99, gt=0, le=1, description="... for this share of them.")
    max_sweeps: int = Field(default=20_000, ge=100, description="Stop after this many sweeps a chain.")
    max_minutes: float | None = Field(default=None, gt=0, description="Stop after this long, converged or not.")
    tau: float = Field(
        default=0.1,
        gt=0,
        description="Precision of the coefficients' prior on standardised features, in units of the spread that items "
        "of the response model typically have.",
    )
    shards: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Examinees are dealt to so many shards, each calibrated alone and put together.",
    )
    max_responses_per_shard: int | None = Field(
        default=None, ge=1000, description="As many shards as keep each below this many responses."
    )
    threads: int | None = Field(
        default=None, ge=1, description="Threads; default all cores. The draws do not depend on it."
    )


class LinkingSpec(_Section):
    """How a period is put on the reference metric."""

    method: Literal["haebara", "stocking_lord", "mean_mean", "mean_sigma", "log_mean_mean"] = Field(
        default="haebara", description="What is made to agree: curves item by item, test curves, or moments of d and a."
    )
    loss: Literal["pseudo_huber", "squared", "power"] = Field(
        default="pseudo_huber", description="Loss of a difference between two curves."
    )
    delta: float = Field(default=0.05, gt=0, description="Where the pseudo-Huber loss turns from square to absolute.")
    power: float = Field(default=2.0, gt=0, le=2, description="Loss (z^2 + eps)^(power/2) when loss = power.")
    eps: float = Field(default=1e-4, ge=0, description="Smooths the power loss at zero.")
    grid_metric: Literal["ref", "focal", "symmetric"] = Field(
        default="ref", description="On whose metric the quadrature nodes live."
    )
    nodes: int = Field(default=61, ge=5, description="Quadrature nodes.")
    node_range: float = Field(default=6.0, gt=0, description="Nodes span [-range, range], with normal weights.")
    weights: Literal["harmonic", "counts", "unit"] = Field(
        default="harmonic",
        description="Weight of an anchor: n n' / (n + n') of its responses on the two sides, their plain sum, or one.",
    )
    max_rhat: float = Field(default=1.05, gt=1.0, description="Anchors above this R-hat in either period are dropped.")
    purify: Literal["score", "paper"] | None = Field(
        default=None,
        description="Which anchors go: those that have more probably drifted than not, by their mean scores; or the "
        "published rule, a share of the largest residuals of d in every round. Default: score, and paper in a bank "
        'whose consensus.method is "paper".',
    )
    purify_probability: float = Field(
        default=0.5, gt=0, lt=1, description="Anchors go where drift is more probable than this (purify = score)."
    )
    purify_share: float = Field(
        default=0.10, ge=0, lt=0.5, description="Share of anchors a round drops (purify = paper)."
    )
    purify_of: Literal["left", "all"] = Field(
        default="left",
        description="The share is one of the anchors left in the round, or of all there were (purify = paper).",
    )
    purify_rounds: int = Field(default=5, ge=0, description="Purification rounds at most; 0: none.")
    min_anchors: int = Field(
        default=10, ge=2, description="Fewer per dimension: link through the consensus or a chain."
    )
    draws: int | None = Field(
        default=None, ge=50, description="Linked draws; default all kept draws (the paper used 200)."
    )


class ConsensusSpec(_Section):
    """How periods are combined."""

    method: Literal["joint", "analytic", "paper"] = Field(
        default="joint",
        description="Items, links and population together; streaming sums in slope and intercept; or the published "
        "method, from linked draws.",
    )
    draws: int = Field(default=2000, ge=1, description="Consensus draws of an item sampled on request.")
    half_life: float | None = Field(
        default=None, ge=0.01, description="Periods after which old information counts half."
    )
    robust_links: bool = Field(
        default=True,
        description="Keep items that disagree between periods from pulling the links (joint); a pooled fit lets them.",
    )
    paper_draws: int = Field(default=200, ge=50, description="Linked draws of a period but the reference (paper).")
    drift_fdr: float = Field(default=0.05, gt=0, lt=1, description="False discovery rate of the drift list.")
    seed: int = Field(default=20262, ge=0, lt=2**63, description="Seed of consensus draws and of the joint sampler.")


class ReportedScore(_Section):
    """How theta becomes a reported score: slope * theta + intercept, rounded, then held within bounds."""

    slope: float = Field(default=1.0, description="Reported points per unit of theta.")
    intercept: float = Field(default=0.0, description="Reported score at theta = 0.")
    min: float | None = Field(default=None, description="Lowest score reported.")
    max: float | None = Field(default=None, description="Highest score reported.")
    round: float | None = Field(default=None, gt=0, description="Scores are multiples of this.")
    weights: dict[str, float] | None = Field(
        default=None, description="Weights of dimensions, for a composite; default: the dimension of the score's name."
    )


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
    reporting: dict[str, ReportedScore] = Field(
        default_factory=dict, description="Reported scores by name: that of a dimension, or of a composite."
    )

    @property
    def linking_in_force(self) -> LinkingSpec:
        """The linking section with the anchor rule that belongs to the consensus method, unless one was chosen."""
        rule = self.linking.purify or ("paper" if self.consensus.method == "paper" else "score")
        return self.linking.model_copy(update={"purify": rule})

    @model_validator(mode="after")
    def _check(self) -> Spec:
        problems = [*self._bank_problems(), *self._group_problems(), *self._prior_problems()]
        problems += self._reporting_problems()
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _bank_problems(self) -> Iterator[str]:
        bank = self.bank
        if bank.reference is not None and (why := safe_name_problem(bank.reference)):
            yield f"bank.reference: {bank.reference!r} {why}"
        for k, name in enumerate(bank.dimensions):
            if why := shown_name_problem(name):
                yield f"bank.dimensions.{k}: {name!r} {why}"
        if len(set(bank.dimensions)) < len(bank.dimensions):
            yield f"bank.dimensions: names must differ, found {list(bank.dimensions)}"

    def _group_problems(self) -> Iterator[str]:
        for name, group in self.groups.items():
            path = f"groups.{name}"
            if why := group_name_problem(name):
                yield f"groups: the name {name!r} {why}"
            if group.dimension not in self.bank.dimensions:
                hint = nearest(group.dimension, self.bank.dimensions)
                yield f"{path}.dimension: {group.dimension!r} is not one of bank.dimensions{hint}"
            try:
                _ = group.kernel_model
            except SpecError as error:
                what = next((w for w in ("slopes", "steps") if w in str(error)), "categories")
                what = "model" if "unknown" in str(error) else what
                yield f"{path}.{what}: {error}"
            try:
                parse_formula(group.features)
            except SpecError as error:
                yield f"{path}.features: {error}"

    def _prior_problems(self) -> Iterator[str]:
        if self.calibration.prior == "bank" and self.consensus.method == "paper":
            yield (
                'calibration.prior: "bank" does not go with consensus.method = "paper", which takes out of each period '
                "the prior that its own population model brought; a period told what the bank knows has none. Take the "
                'method "joint" or "analytic", or the prior "population"'
            )

    def _reporting_problems(self) -> Iterator[str]:
        for name, rule in self.reporting.items():
            path = f"reporting.{name}"
            if why := shown_name_problem(name):
                yield f"reporting: the name {name!r} {why}"
            if rule.weights is None and name not in self.bank.dimensions:
                hint = nearest(name, self.bank.dimensions)
                yield f"{path}: {name!r} is not one of bank.dimensions, and a composite needs weights{hint}"
            for dimension in rule.weights or {}:
                if dimension not in self.bank.dimensions:
                    yield f"{path}.weights: {dimension!r} is not one of bank.dimensions"
            if rule.weights is not None and not any(rule.weights.values()):
                yield f"{path}.weights: no dimension has a weight"
            if rule.slope == 0:
                yield f"{path}.slope: must not be 0"
            if rule.min is not None and rule.max is not None and rule.min >= rule.max:
                yield f"{path}: min must be below max"

    def group(self, name: str) -> GroupSpec | None:
        """A group, or the part of it that has its own number of categories, by name; None: there is none.

        >>> spec = Spec.parse({"bank": {"dimensions": ["writing"]},
        ...                    "groups": {"essay": {"model": "gpcm", "dimension": "writing"}}})
        >>> spec.group("essay (3 categories)").response_model.n_categories
        3
        """
        base, categories = split_stratum(name)
        found = self.groups.get(base)
        if found is None or (categories is not None and not found.polytomous):
            return None
        return found.of(categories)

    @classmethod
    def parse(cls, data: Mapping[str, Any], source: str = "the spec") -> Spec:
        """Validate plain data (what tomllib gives); every problem is named by the path of its field.

        Examples
        --------
        >>> Spec.parse({"bank": {"dimensions": ["reading"]},
        ...             "groups": {"vocabulary": {"modle": "2pl", "dimension": "reading"}}})
        Traceback (most recent call last):
        concal.errors.SpecError: 2 problems in the spec
          - groups.vocabulary.model: missing
          - groups.vocabulary.modle: unknown key; did you mean 'model'?
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            problems = [line for detail in error.errors() for line in _explain(cls, detail)]
        noun = "problem" if len(problems) == 1 else "problems"
        raise SpecError(f"{len(problems)} {noun} in {source}" + "".join(f"\n  - {line}" for line in problems))

    @classmethod
    def read(cls, path: str | Path) -> Spec:
        """Read a bank.toml."""
        try:
            data = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
        except FileNotFoundError:
            raise SpecError(f"there is no file {str(path)!r}") from None
        except OSError as error:
            raise SpecError(f"{str(path)!r} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise SpecError(f"{str(path)!r} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise SpecError(f"{str(path)!r} is not valid TOML: {error}") from None
        return cls.parse(data, repr(str(path)))

    def to_toml(self) -> str:
        """The spec as TOML, with every default written out; parsing it gives an equal spec."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def write(self, path: str | Path) -> None:
        """Write as TOML; reading it back gives an equal spec."""
        Path(path).write_bytes(self.to_toml().encode("utf-8"))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON schema of bank.toml, for editors."""
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **cls.model_json_schema()}


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """``; did you mean 'x'?`` or, where nothing is near, what there is."""
    names = [str(k) for k in known]
    near = get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else f"; there is {first_few(names, 12)}"


_INSTEAD = {
    ("data.returning", "later"): (
        "to let the responses of the later period count, put the earlier one in again without those examinees "
        "(`concal add BANK PERIOD ... --replace`), or take it out (`concal retract`), and add the later one then"
    )
}
"""What to do where a choice that people look for is none."""


def _explain(root: type[BaseModel], detail: Any) -> list[str]:
    """One of pydantic's findings in the words of bank.toml."""
    loc, kind, given = detail["loc"], detail["type"], detail["input"]
    path = ".".join(str(part) for part in loc)
    match kind:
        case "value_error" if not loc:
            return str(detail["ctx"]["error"]).splitlines()
        case "extra_forbidden":
            return [f"{path}: unknown key{nearest(str(loc[-1]), _section(root, loc[:-1]).model_fields)}"]
        case "too_short":
            return [f"{path}: needs at least one"]
        case "missing":
            return [f"{path}: missing"]
        case "literal_error" if (path, given) in _INSTEAD:
            return [f"{path}: {given!r} is not a choice; {_INSTEAD[path, given]}"]
        case "literal_error":
            allowed = get_args(_section(root, loc[:-1]).model_fields[str(loc[-1])].annotation)
            hint = nearest(str(given), map(str, allowed)).replace("; there is", "; it must be one of")
            return [f"{path}: {given!r} is not a choice{hint}"]
        case "model_type" | "model_attributes_type" | "dict_type":
            return [f"{path or 'the file'}: must be a table ([{path or '...'}]), not {given!r}"]
    return [f"{path}: {str(detail['msg'])[0].lower()}{str(detail['msg'])[1:]}, not {given!r}"]


def _section(root: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    """The section of the spec a path leads to."""
    if not loc:
        return root
    if loc[0] in ("groups", "reporting"):
        return GroupSpec if loc[0] == "groups" else ReportedScore
    found = root.model_fields[str(loc[0])].annotation
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise AssertionError(f"{loc} is not a section")
    return found
