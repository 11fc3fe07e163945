"""bank.toml: what is wrong is named by its path, what is right survives writing and reading."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from concal.errors import SpecError
from concal.names import check_safe_name
from concal.spec import (
    BankSpec,
    CalibrationSpec,
    ConsensusSpec,
    DataSpec,
    GroupSpec,
    LinkingSpec,
    Spec,
)

GOOD = {
    "bank": {"dimensions": ["reading", "writing"]},
    "groups": {"vocabulary": {"model": "2pl", "dimension": "reading"}},
}


def changed(path: str, value: object) -> dict:
    data = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    node = data
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("groups.vocabulary.modle", "2pl", "groups.vocabulary.modle: unknown key; did you mean 'model'?"),
        ("bank.refernce", "x", "bank.refernce: unknown key; did you mean 'reference'?"),
        ("calibraton", {}, "calibraton: unknown key; did you mean 'calibration'?"),
        ("groups.vocabulary.model", "2lp", "groups.vocabulary.model: unknown response model '2lp'"),
        ("groups.vocabulary.model", "gcpm", "did you mean 'gpcm'?"),
        ("groups.vocabulary.categories", 5, "groups.vocabulary.categories: response model '2pl' takes no categories"),
        ("groups.vocabulary.categories", 1, "groups.vocabulary.categories: input should be greater than or equal to 2"),
        ("groups.vocabulary.dimension", "raeding", "groups.vocabulary.dimension: 'raeding' is not one of"),
        ("groups.vocabulary.dimension", "raeding", "did you mean 'reading'?"),
        ("groups.vocabulary", {"model": "2pl"}, "groups.vocabulary.dimension: missing"),
        ("groups.vocabulary", "2pl", "groups.vocabulary: must be a table"),
        ("groups.vocabulary.features", "~ lgo(x)", "groups.vocabulary.features: formula '~ lgo(x)', character 3"),
        ("groups.vocabulary.features", "~ open('x')", "groups.vocabulary.features: formula"),
        ("groups", {}, "groups: needs at least one"),
        ("groups. ", {"model": "2pl", "dimension": "reading"}, "groups: the name ' ' must be"),
        ("bank.dimensions", [], "bank.dimensions: needs at least one"),
        ("bank.dimensions", ["a", "reading", "a"], "bank.dimensions: names must differ"),
        ("bank.dimensions", ["reading", "b\x07"], "bank.dimensions.1: 'b\\x07' must be 1 to 100 printable"),
        ("bank.reference", "../../etc", "bank.reference: '../../etc' must be 1 to 64"),
        ("bank.reference", "NUL", "bank.reference: 'NUL' is the name of a device"),
        ("linking.method", "haebera", "linking.method: 'haebera' is not a choice; did you mean 'haebara'?"),
        ("linking.power", 3, "linking.power: input should be less than or equal to 2, not 3"),
        ("linking.delta", math.nan, "linking.delta: "),
        ("calibration.draws", "many", "calibration.draws: input should be a valid integer"),
        ("consensus.method", "tilted", "consensus.method: 'tilted' is not a choice"),
        ("consensus.half_life", 0.0, "consensus.half_life: input should be greater than or equal to 0.01"),
        ("consensus.tilt", 1, "consensus.tilt: unknown key"),
        ("consensus.paper_draws", 10, "consensus.paper_draws: input should be greater than or equal to 50"),
        ("calibration.chains", 9, "calibration.chains: input should be less than or equal to 8"),
        ("calibration.chains", 1, "calibration.chains: input should be greater than or equal to 2"),
    ],
)
def test_problems_are_named_by_their_path(path, value, message):
    with pytest.raises(SpecError) as caught:
        Spec.parse(changed(path, value))
    assert message in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_the_published_method_has_no_priors_from_the_bank():
    content = {
        "bank": {"dimensions": ["reading"]},
        "groups": {"v": {"model": "2pl", "dimension": "reading"}},
        "calibration": {"prior": "bank"},
    }
    for method in ("joint", "analytic"):
        assert Spec.parse(content | {"consensus": {"method": method}}).calibration.prior == "bank"
    with pytest.raises(
        SpecError, match=r'calibration.prior: "bank" does not go with .*"paper".*Take the method "joint"'
    ):
        Spec.parse(content | {"consensus": {"method": "paper"}})


def test_all_problems_at_once():
    with pytest.raises(SpecError, match="3 problems in the spec"):
        Spec.parse({"bank": {"dimensions": ["r"], "nmae": "x"}, "groups": {"g": {"modle": "2pl", "dimension": "r"}}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[bank\n", "is not valid TOML: .*line 1"),
        (b"x = '\xff'", "is not UTF-8 text .byte 5."),
        (b"", "2 problems in .*bank.toml"),
        (b"bank = 3\ngroups = 4", "bank: must be a table"),
        (b"a = " + b"[" * 100_000, "is not valid TOML"),
    ],
)
def test_unreadable_files(tmp_path, content, message):
    path = tmp_path / "bank.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        Spec.read(path)


def test_no_file(tmp_path):
    with pytest.raises(SpecError, match="there is no file"):
        Spec.read(tmp_path / "bank.toml")
    with pytest.raises(SpecError, match="cannot be read"):
        Spec.read(tmp_path)


def test_byte_order_mark(tmp_path):
    path = tmp_path / "bank.toml"
    Spec.parse(GOOD).write(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Spec.read(path) == Spec.parse(GOOD)


def test_a_spec_is_frozen():
    spec = Spec.parse(GOOD)
    with pytest.raises(ValidationError):
        spec.bank.name = "other"
    with pytest.raises(ValidationError):
        spec.linking = LinkingSpec()


def test_schema_says_what_each_field_is():
    schema = Spec.json_schema()
    json.dumps(schema)
    assert schema["$defs"]["GroupSpec"]["additionalProperties"] is False
    assert schema["$defs"]["CalibrationSpec"]["properties"]["draws"]["default"] == 1000
    undocumented = [
        f"{section}.{name}"
        for section, body in schema["$defs"].items()
        for name, field in body["properties"].items()
        if "description" not in field
    ]
    assert undocumented == []


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=20)
SAFE = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True).filter(
    lambda n: n.lower() not in {"con", "prn", "aux", "nul", "consensus"} and n.lower()[:3] not in {"com", "lpt"}
)
POSITIVE = st.floats(1e-6, 1e6)


@st.composite
def specs(draw) -> Spec:
    dimensions = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    group = st.one_of(
        st.builds(
            GroupSpec,
            model=st.sampled_from(["2pl", "3pl", "beta", "ordered_beta"]),
            dimension=st.sampled_from(dimensions),
            features=st.sampled_from(["~ 1", '~ x + C(`odd "name"`)', "~ bs(x, df=4)"]),
        ),
        st.builds(
            GroupSpec,
            model=st.sampled_from(["gpcm", "grm"]),
            categories=st.integers(3, 64),
            dimension=st.sampled_from(dimensions),
        ),
    )
    return Spec(
        bank=BankSpec(name=draw(st.text()), reference=draw(st.none() | SAFE), dimensions=tuple(dimensions)),
        groups=draw(st.dictionaries(NAMES, group, min_size=1, max_size=3)),
        data=draw(st.builds(DataSpec, few_responses=st.integers(0, 100))),
        calibration=draw(
            st.builds(
                CalibrationSpec,
                seed=st.integers(0, 2**63 - 1),
                tau=POSITIVE,
                max_minutes=st.none() | POSITIVE,
                threads=st.none() | st.integers(1, 64),
            )
        ),
        linking=draw(st.builds(LinkingSpec, delta=POSITIVE, draws=st.none() | st.integers(50, 5000))),
        consensus=draw(
            st.builds(
                ConsensusSpec,
                method=st.sampled_from(["joint", "analytic", "paper"]),
                half_life=st.none() | st.floats(0.01, 1e6),
                robust_links=st.booleans(),
                paper_draws=st.integers(50, 5000),
            )
        ),
    )


@pytest.mark.property
@given(spec=specs())
def test_write_and_read_give_an_equal_spec(spec, tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "bank.toml"
    spec.write(path)
    assert Spec.read(path) == spec


@pytest.mark.parametrize("name", ["2026Q1", "a", "A.b-c_9", "x" * 64, "Q1.v2"])
def test_safe_names(name):
    assert check_safe_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "a/b",
        "a\\b",
        "a b",
        "é",
        "x" * 65,
        "con",
        "COM1",
        "nul.txt",
        "a\n",
        "-x",
        "a.",
        "consensus",
    ],
)
def test_unsafe_names(name):
    with pytest.raises(SpecError, match="release"):
        check_safe_name(name, "release")


@pytest.mark.parametrize(
    ("method", "chosen", "rule"),
    [("joint", None, "score"), ("paper", None, "paper"), ("paper", "score", "score"), ("analytic", "paper", "paper")],
)
def test_the_published_method_takes_its_own_rule_for_anchors(method, chosen, rule):
    content = {
        "bank": {"dimensions": ["reading"]},
        "groups": {"vocabulary": {"model": "2pl", "dimension": "reading"}},
        "consensus": {"method": method},
        "linking": {} if chosen is None else {"purify": chosen},
    }
    assert Spec.parse(content).linking_in_force.purify == rule
