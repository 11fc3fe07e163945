"""Examinees and tests at the items of a version: scores, plausible values, information."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Literal

import polars as pl

from concal.bank.exchange.scores import ScoreRequest
from concal.bank.reading.contents import Contents
from concal.bank.scoring import scoring_bank
from concal.data.read import Table
from concal.errors import DataWarning
from concal.score.estimate import Level, Method
from concal.score.information import Information, information
from concal.score.prior import Prior
from concal.score.responses import Unknown
from concal.score.score import ScoreOptions, ScoringBank
from concal.score.scorer import Scorer


class People(Contents):
    """What the items say about those who answer them."""

    def scoring(self, *, joint: bool = True) -> ScoringBank:
        """What scoring needs of this version, read once; without `joint` the joint draws across items are left out."""
        return scoring_bank(self, joint=joint)

    def score(
        self,
        responses: Table,
        *,
        method: Method = "eap",
        items: Level | None = None,
        prior: str | Prior = "all",
        prior_column: str | None = None,
        draws: int = 100,
        period: str | None = None,
        unknown: Unknown = "error",
        wide: bool = False,
    ) -> pl.DataFrame:
        """Scores of examinees on the reference metric, one row each, sorted by person_id.

        Columns: person_id, n_responses, prior, items (the level of item uncertainty; for draws whether they are joint
        or independent), then per dimension D theta_D, se_D and its parts se_measurement_D, se_items_D, se_link_D (null
        where the level does not tell), n_D, flag_D ("prior": no response, the estimate is the prior's; "no responses",
        "not finite"), correlations of the posterior, and for every reported score score_NAME and se_score_NAME.

        What the reader has to say about the responses (items ignored, split, duplicated) is a `concal.DataWarning`.

        Parameters
        ----------
        responses
            Path or data frame, as in `Bank.add`.
        method
            "eap" (posterior mean), "map" (mode), "ml" (likelihood), "wle" (Warm's weighted likelihood).
        items
            "mean" (point parameters), "soft" (every item's likelihood averaged over its posterior; with eap),
            "draws" (one item set after the other). Default: soft with eap, mean with the others.
        prior
            The ability distribution of a period or of a group of examinees (its name), of all periods ("all"), or a
            `concal.score.prior.Prior`.
        prior_column
            A column of the responses that names each examinee's period or group instead.
        draws
            How many item sets, for items = "draws".
        period
            When the responses were given: an item that was split is scored as it was in that period. Default: the
            examinee's period of `prior_column`, else as it is now.
        unknown
            Responses to items the bank does not have: "error", or "ignore" and count them (n_unknown).
        wide
            Responses have one column per item.
        """
        options = ScoreOptions(method, items, prior, draws)
        request = ScoreRequest(options, wide, prior_column, unknown, period)
        return _told(request.table(self.scoring(joint=options.level == "draws"), responses))

    def plausible_values(
        self,
        responses: Table,
        n: int = 10,
        *,
        per_draw: int = 1,
        covariates: Table | None = None,
        prior: str | Prior = "all",
        prior_column: str | None = None,
        seed: int = 20264,
        period: str | None = None,
        unknown: Unknown = "error",
        wide: bool = False,
    ) -> pl.DataFrame:
        """Plausible values, a long table: person_id, pv, item_draw, theta_D.

        Each of the n draws of items and links gives `per_draw` sets; `concal.score.pool` pools statistics over them,
        and with two or more sets per draw says how much of their variance is due to items and links.

        Parameters
        ----------
        responses, prior, prior_column, period, unknown, wide
            As in `score`.
        n, per_draw, seed
            Draws of items and links, sets at each, and the random stream.
        covariates
            Path or data frame with a row per examinee: person_id and the variables later analyses will use. They make
            the prior then: a regression of abilities on them, estimated from these responses. Without it, regressions
            on variables the prior does not contain are attenuated.
        """
        options = ScoreOptions(prior=prior, seed=seed)
        request = ScoreRequest(options, wide, prior_column, unknown, period, n, per_draw, covariates)
        return _told(request.table(self.scoring(), responses))

    def scorer(self, *, items: Literal["mean", "soft"] = "soft", prior: str | Prior = "all") -> Scorer:
        """What scores one examinee at a time, for live use: loaded once, pinned to this version, safe in threads.

        Its scores are those of `score` with the same items and prior.

        Examples
        --------
        >>> scorer = concal.Bank("bank").at("fall-2026").scorer()  # doctest: +SKIP
        >>> scorer.score({"item-17": 1, "item-18": 0}).theta  # doctest: +SKIP
        """
        return Scorer(self.scoring(joint=False), items=items, prior=prior)

    def information(
        self, ids: Iterable[str] | None = None, *, theta: Iterable[float] | None = None, draws: int = 100
    ) -> Information:
        """What items measure taken together as one test, with bands from the draws of the items.

        Parameters
        ----------
        ids
            Default: the whole bank.
        theta
            Where; default -4 to 4.
        draws
            How many draws of the items.
        """
        ready = self.scoring()
        asked = None if ids is None else [ids] if isinstance(ids, str) else list(ids)
        at = None if theta is None else list(theta)
        return information(ready.items, ready.abilities, ids=asked, theta=at, draws=draws)


def _told(scored: tuple[pl.DataFrame, tuple[str, ...]]) -> pl.DataFrame:
    """A table of people; what is to be told beside it is told to whoever called the method that asked."""
    table, found = scored
    for text in found:
        warnings.warn(text, DataWarning, stacklevel=3)
    return table
