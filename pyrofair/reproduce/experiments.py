"""The paper's tables and figures by name: which classifiers each one needs, and how its files are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pyrofair.effects import test_set_bound
from pyrofair.reproduce.figures import (
    draw_accuracies,
    draw_effects,
    draw_frontier,
    draw_intervals,
    draw_path,
    draw_region,
)
from pyrofair.reproduce.fits import BOUNDED, DELTA, PAPER_MODE, Job
from pyrofair.reproduce.printed import PRINTED, Printed, printed
from pyrofair.reproduce.problems import PROBLEMS
from pyrofair.reproduce.results import (
    BEYOND,
    OF_PAPER,
    PAPER,
    PERCENT,
    WEIGHTS,
    Outcome,
    Results,
    Scale,
    Table,
    by_strength,
    shown,
    spread,
    summarise,
)
from pyrofair.reproduce.verdicts import (
    FAILS,
    HOLDS,
    Verdict,
    alike,
    possible,
    printed_interval,
    printed_number,
    printed_order,
    small,
)

__all__ = ["EXPERIMENTS", "Experiment"]

WITHOUT_PSCF = PAPER[:-1]
CLOSE, ZERO = 0.1, 0.005
"""How large a statistic of unfair effects may be, for decisions, to count as close to zero, and as zero."""


# -- accuracy tables: table1, table-logistic, additive, oracle ---------------------------------------------------------


def _accuracy_tables(
    results: Results, table: str, datas: Sequence[str], model: str, name: str
) -> tuple[dict[str, Table], pd.DataFrame, pd.DataFrame]:
    """Return our accuracies beside the printed ones as tables, the summaries of all data sets, and the rates."""
    tables, parts = {}, []
    for data in datas:
        summary = summarise(results.chosen(data, model))
        parts.append(summary.assign(data=data))
        claims, rates = printed(table, data, "accuracy"), results.rates(data)
        full = summary.assign(data=data, model=model, **{f"{key}_rate": value for key, value in rates.items()})
        full["printed"] = [_value(claims.get(OF_PAPER.get(each, each))) for each in full["method"]]
        title = f"{PROBLEMS[data].title}, {'network' if model == 'network' else 'logistic regression'}"
        tables[f"{name}-{data}"] = Table(title, full, shown(summary, claims, rates))
    return tables, pd.concat(parts, ignore_index=True), pd.DataFrame({each: results.rates(each) for each in datas}).T


def _value(claim: Printed | None) -> float:
    return float("nan") if claim is None else claim.value


def _ours(results: Results, data: str, model: str, name: str, column: str = "accuracy") -> pd.Series[float]:
    """Return a column of a chosen classifier by seed; accuracies and PIU in %."""
    chosen = results.chosen(data, model)
    own = chosen[chosen["classifier"] == name].set_index("seed")[column]
    return 100.0 * own if column in (*PERCENT, "true_piu") else own


def _number_verdicts(results: Results, claims: Iterable[Printed], model: str) -> list[Verdict]:
    """Return a verdict on each printed accuracy; of two kinds of Remove, the nearer one counts."""
    found = []
    for claim in claims:
        if (impossible := possible(claim)) is not None:
            found.append(impossible)
        names = [each for each, of in OF_PAPER.items() if of == claim.method] or [claim.method]
        ours = {each: own for each in names if len(own := _ours(results, claim.data, model, each))}
        name = min(ours, key=lambda each: abs(float(ours[each].mean()) - claim.value))
        rates = results.rates(claim.data)
        context = "" if name == claim.method or name in BOUNDED else f" ({name}, the nearest kind)"
        if claim.value <= rates["majority"] + 0.2:
            context += f"; the majority class alone has {rates['majority']:.1f} %"
        if np.isfinite(rates["bayes"]) and claim.method == "Unconstrained":
            context += f"; the best classifier of the printed equations has {rates['bayes']:.1f} %"
        traced = results.traced(claim.data, model, name)
        found.append(printed_number(claim, ours[name].to_numpy(), traced, context))
    return found


def _order_verdicts(results: Results, source: str, datas: Sequence[str], model: str) -> list[Verdict]:
    """Return verdicts on the order of accuracies that the paper's text names."""
    found = []
    for data in datas:
        accuracy = {name: _ours(results, data, model, name) for name in dict.fromkeys([*WITHOUT_PSCF, PAPER_MODE])}
        accuracy = {name: values for name, values in accuracy.items() if len(values)}
        found.append(
            printed_order(source, data, "FIO is more accurate than Proposed", accuracy["FIO"], accuracy["Proposed"])
        )
        for kind in ("Remove (touched)", "Remove (descendants)"):
            rate = _ours(results, data, model, "Proposed", "positive_rate").mean()
            text = f"Proposed is more accurate than {kind}"
            context = f"; Proposed decides yes for {rate:.1f} %"
            found.append(printed_order(source, data, text, accuracy["Proposed"], accuracy[kind], context=context))
        if PAPER_MODE in accuracy:
            text = "Proposed is as accurate as PSCF"
            found.append(alike(source, data, text, accuracy["Proposed"], accuracy[PAPER_MODE]))
    return found


def _table1(results: Results) -> Outcome:
    datas = ("synth", "german", "adult")
    tables, summaries, rates = _accuracy_tables(results, "table1", datas, "network", "table1")
    claims = [each for each in PRINTED if each.table == "table1"]
    verdicts = [
        *_number_verdicts(results, claims, "network"),
        *_order_verdicts(results, "sec:experiment", datas, "network"),
    ]
    return Outcome(tables, {"table1": _accuracy_figure(summaries, claims, rates)}, verdicts, (CHOICE, SPREAD))


def _accuracy_figure(summaries: pd.DataFrame, claims: Iterable[Printed], rates: pd.DataFrame) -> Figure:
    of = {}
    for claim in claims:
        for name in [each for each, known in OF_PAPER.items() if known == claim.method] or [claim.method]:
            of[claim.data, name] = claim
    titles = {data: PROBLEMS[data].title for data in summaries["data"].unique()}
    return draw_accuracies(summaries, of, rates, titles)


def _table_logistic(results: Results) -> Outcome:
    datas = ("synth", "german", "adult")
    tables, summaries, rates = _accuracy_tables(results, "table_logistic", datas, "logistic", "table-logistic")
    claims = [each for each in PRINTED if each.table == "table_logistic"]
    verdicts = [
        *_number_verdicts(results, claims, "logistic"),
        *_order_verdicts(results, "subsec-a:logisticexp", datas, "logistic"),
        *_effect_verdicts(results, "fig-ue_logistic", datas, "logistic"),
    ]
    drawn = {
        "table-logistic": _accuracy_figure(summaries, claims, rates),
        "table-logistic-effects": draw_effects(summaries, {each: PROBLEMS[each].title for each in datas}),
    }
    return Outcome(tables, drawn, verdicts, (CHOICE, SPREAD))


# -- figures 2, 4, 5 --------------------------------------------------------------------------------------------------


def _fig2(results: Results) -> Outcome:
    points, rows = {}, []
    for data in ("synth", "adult"):
        for method in ("Proposed", "FIO"):
            own = results.of(data)
            own = own[own["method"] == method]
            means = own.groupby("strength")[["p_y0", "p_ypi", "positive_rate", "accuracy"]].mean().reset_index()
            points[f"{method}, {PROBLEMS[data].title}"] = means
            rows.append(means.assign(data=data, method=method))
    table = pd.concat(rows, ignore_index=True)
    ends = {}
    for name, own in points.items():
        if name.startswith("Proposed"):
            last = own.sort_values("strength").iloc[-1]
            ends[name] = np.minimum(
                np.hypot(last["p_y0"], last["p_ypi"]), np.hypot(1 - last["p_y0"], 1 - last["p_ypi"])
            )
    verdicts = [
        Verdict(
            "fig2-constrained", "", "Near delta = 0 the constraint accepts (0, 0) and (1, 1) alone; FIO's accepts "
            "(.5, .5) always", HOLDS, "both follow from the formulas, drawn as they are printed",
        ),
        small("subsec:feasible", "", "With a strong penalty Proposed comes near (0, 0) or (1, 1)", ends, CLOSE,
              "; it is the distance at the largest strength, by the weights: there almost all have one decision"),
    ]  # fmt: skip
    page = table[["data", "method", "strength", "p_y0", "p_ypi", "positive_rate", "accuracy"]]
    page = page[page["strength"].isin([0.0, 0.5, 1.0, 1.5, 2.0])].round(3)
    title = "Marginals of decisions by the paper's weights, test rows, means over seeds"
    return Outcome({"fig2": Table(title, table, page)}, {"fig2": draw_region(points)}, verdicts)


def _effect_verdicts(results: Results, source: str, datas: Sequence[str], model: str) -> list[Verdict]:
    """Return verdicts on what the paper reads off its figure of four statistics."""
    found = []
    for data in datas:
        scenario = PROBLEMS[data].scenario is not None
        names = ["mean_unfair_effect", "piu_paper_bound", *(("true_piu",) if scenario else ())]
        sizes = {name: _ours(results, data, model, "Proposed", name) for name in names}
        if scenario:
            sizes["true_piu"] = sizes["true_piu"] / 100.0
        rate = _ours(results, data, model, "Proposed", "positive_rate").mean()
        majority = results.rates(data)["majority"]
        accuracy = _ours(results, data, model, "Proposed").mean()
        text = f"; {rate:.1f} % are decided yes, and the accuracy is {accuracy:.1f} % (majority {majority:.1f} %)"
        found.append(small(source, data, "With Proposed all statistics are close to zero", sizes, CLOSE, text))
        effect = {"mean_unfair_effect": _ours(results, data, model, "FIO", "mean_unfair_effect")}
        found.append(small(source, data, "With FIO the mean unfair effect is close to zero", effect, CLOSE / 2))
        other = _ours(results, data, model, "FIO", "piu_paper_bound").mean()
        text = f"the bound is {other:.3f}"
        if scenario:
            piu = _ours(results, data, model, "FIO", "true_piu").mean() / 100.0
            text += f", but the true PIU {piu:.3f}"
        verdict = HOLDS if other > CLOSE else FAILS
        found.append(Verdict(source, data, "With FIO the bound on PIU stays away from zero", verdict, text))
        for kind in ("Remove (touched)", "Remove (descendants)"):
            zero = {name: _ours(results, data, model, kind, name) for name in names}
            if scenario:
                zero["true_piu"] = zero["true_piu"] / 100.0
            found.append(small(source, data, f"With {kind} all statistics are zero", zero, ZERO))
    return found


def _fig4(results: Results) -> Outcome:
    datas = ("synth", "german", "adult")
    parts = []
    for data in datas:
        summary = summarise(results.chosen(data))
        parts.append(summary.assign(data=data))
    table = pd.concat(parts, ignore_index=True)
    claims = {("synth", "Proposed"): printed("table_bound", "synth", "piu")["Proposed"]}
    verdicts = _effect_verdicts(results, "fig-ue", datas, "network")
    spread = _ours(results, "synth", "network", PAPER_MODE, "true_sd")
    plain = _ours(results, "synth", "network", "Unconstrained", "true_sd")
    verdicts.append(
        Verdict(
            "fig-ue", "synth", "PSCF fails to reduce the spread of conditional effects",
            HOLDS if spread.mean() > 0.5 * plain.mean() else FAILS,
            f"with latents from the prior it is {spread.mean():.3f}, without any constraint {plain.mean():.3f}",
        )
    )  # fmt: skip
    tables = {}
    for data in datas:
        own = table[table["data"] == data]
        title = f"{PROBLEMS[data].title}: effects of decisions"
        tables[f"fig4-{data}"] = Table(title, own, shown(own.reset_index(drop=True), {}, results.rates(data)))
    drawn = draw_effects(table, {each: PROBLEMS[each].title for each in datas}, claims)
    return Outcome(tables, {"fig4": drawn}, verdicts, (CHOICE, EFFECTS))


def _fig5(results: Results) -> Outcome:
    rows = results.rows
    rows = rows[(rows["data"] == "adult") & (rows["seed"] == 0) & rows["method"].isin(["Proposed", "FIO"])]
    majority = 100.0 * float(rows["majority_rate"].iloc[0])
    claims = printed("table1", "adult", "accuracy")
    drawn = draw_path(rows, ("Proposed", "FIO"), majority, claims)
    decided = rows[rows["decisions"] == "threshold"].set_index(["method", "strength"]).sort_index()
    accuracy, bound = decided["accuracy"].unstack("method"), decided["piu_paper_bound"].unstack("method")  # noqa: PD010
    effect = decided["mean_unfair_effect"].unstack("method").abs()  # noqa: PD010
    first, last = accuracy.index.min(), accuracy.index.max()
    lost = 100.0 * (accuracy.loc[first] - accuracy.loc[last])
    rate = 100.0 * decided["positive_rate"]["Proposed", last]
    collapse = (
        f" (positive rate {rate:.1f} %, accuracy {100 * accuracy['Proposed'][last]:.1f} %, majority {majority:.1f} %)"
    )
    verdicts = [
        Verdict(
            "fig3", "adult", "The accuracy of Proposed falls more sharply than FIO's",
            HOLDS if lost["Proposed"] > lost["FIO"] else FAILS,
            f"from strength {first:g} to {last:g} they lose {lost['Proposed']:.1f} and {lost['FIO']:.1f} points",
        ),
        Verdict(
            "fig3", "adult", "With Proposed, mean unfair effect and bound drop to nearly zero",
            HOLDS if max(effect["Proposed"][last], bound["Proposed"][last]) <= CLOSE else FAILS,
            f"at {last:g} they are {effect['Proposed'][last]:.3f} and {bound['Proposed'][last]:.3f}, because nearly "
            f"all are decided no{collapse}",
        ),
        Verdict(
            "fig3", "adult", "With FIO only the mean unfair effect drops",
            HOLDS if effect["FIO"][last] < 0.5 * effect["FIO"][first] and bound["FIO"][last] > CLOSE else FAILS,
            f"at {last:g} the effect is {effect['FIO'][last]:.3f} ({effect['FIO'][first]:.3f} at {first:g}), the bound "
            f"{bound['FIO'][last]:.3f}",
        ),
    ]  # fmt: skip
    columns = ["accuracy", "positive_rate", "mean_unfair_effect", "piu_paper_bound", "one_step_mean_unfair_effect",
               "one_step_piu_lower", "one_step_piu_upper"]  # fmt: skip
    page = decided.reindex(columns=columns).reset_index()
    page = page[page["strength"].isin([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0])].round(3)
    rates = f"The majority class alone is right for {majority:.1f} % of the test rows; the Bayes rate is not known."
    title = "Adult, the first split: decisions by strength"
    return Outcome({"fig5": Table(title, rows, page)}, {"fig5": drawn}, verdicts, (rates, PATHS))


# -- appendices -------------------------------------------------------------------------------------------------------


def _testsetbound(results: Results) -> Outcome:
    methods = ("Proposed", "FIO", "Unconstrained", "Remove (touched)", "Remove (descendants)")
    rows, verdicts = [], []
    for data in ("german", "adult"):
        claims = printed("table_testsetbound", data)
        chosen = results.chosen(data, "logistic")
        first: Any = chosen[chosen["seed"] == 0].set_index("classifier")
        for method in methods:
            n = int(first.loc[method, "n_test"])
            errors = round((1.0 - first.loc[method, "accuracy"]) * n)
            low, high = test_set_bound(errors, n)
            claim = claims[OF_PAPER.get(method, method)]
            assert claim.interval is not None, "each has a bound"
            others = 100.0 * (1.0 - chosen[chosen["classifier"] == method]["accuracy"])
            rows.append(
                {
                    "data": data, "method": method, "errors": errors, "test_rows": n, "error": 100.0 * errors / n,
                    "low": 100.0 * low, "high": 100.0 * high, "error_printed": claim.value,
                    "low_printed": claim.interval[0], "high_printed": claim.interval[1],
                    "majority_error": 100.0 * (1.0 - first.loc[method, "majority_rate"]),
                    "all_splits": others.mean(), "all_splits_sd": others.std(ddof=1) if len(others) > 1 else np.nan,
                }
            )  # fmt: skip
        verdicts += [each for claim in claims.values() if (each := possible(claim)) is not None]
        verdicts += [printed_interval(claim) for claim in claims.values()]
    table = pd.DataFrame(rows)
    verdicts += _interval_verdicts(table)
    page = pd.DataFrame(
        {
            "data": [PROBLEMS[each].title for each in table["data"]],
            "method": table["method"],
            "printed error, %": table["error_printed"],
            "printed bound": [
                f"[{a:.1f}, {b:.1f}]" for a, b in zip(table["low_printed"], table["high_printed"], strict=True)
            ],
            "error, %": table["error"].round(1),
            "bound": [f"[{a:.1f}, {b:.1f}]" for a, b in zip(table["low"], table["high"], strict=True)],
            "all splits": [spread(a, b, 1) for a, b in zip(table["all_splits"], table["all_splits_sd"], strict=True)],
            "majority class": table["majority_error"].round(1),
        }
    )
    titles = {each: PROBLEMS[each].title for each in ("german", "adult")}
    drawn = draw_intervals(table, titles)
    title = "Test error and test set bound, logistic regression, the first split"
    return Outcome({"testsetbound": Table(title, table, page)}, {"testsetbound": drawn}, verdicts, (CHOICE, BOUND))


def _interval_verdicts(table: pd.DataFrame) -> list[Verdict]:
    """Return verdicts on whether the paper's two comparisons of intervals hold of ours, and on its two tables."""
    found, source = [], "subsec-a:errbexp"
    of: Any = table.set_index(["data", "method"]).sort_index()
    for kind in ("Remove (touched)", "Remove (descendants)"):
        ours, other = of.loc[("adult", "Proposed")], of.loc[("adult", kind)]
        text = (
            f"Proposed [{ours['low']:.1f}, {ours['high']:.1f}], {kind} [{other['low']:.1f}, {other['high']:.1f}], "
            f"majority class {ours['majority_error']:.1f} %"
        )
        claim = f"Proposed has a significantly lower test error than {kind}"
        found.append(Verdict(source, "adult", claim, HOLDS if ours["high"] < other["low"] else FAILS, text))
    german = of.loc["german"]
    apart = german["low"].max() > german["high"].min()
    text = f"the largest lower end is {german['low'].max():.1f} %, the smallest upper end {german['high'].min():.1f} %"
    found.append(Verdict(source, "german", "Test errors do not differ significantly", FAILS if apart else HOLDS, text))
    error = printed("table_testsetbound", "adult")["Remove"].value
    accuracy = printed("table_logistic", "adult")["Remove"].value
    found.append(
        Verdict(
            "table_testsetbound", "adult", "Both tables of the logistic model agree on Remove",
            HOLDS if abs(100.0 - accuracy - error) < 0.05 else FAILS,
            f"an accuracy of {accuracy:.1f} % is an error of {100 - accuracy:.1f} %, not {error:.1f} %",
        )
    )  # fmt: skip
    return found


def _additive(results: Results) -> Outcome:
    tables, summaries, rates = _accuracy_tables(results, "table_adm", ("additive",), "network", "additive")
    claims = [each for each in PRINTED if each.table == "table_adm"]
    verdicts = _number_verdicts(results, claims, "network")
    accuracy = {name: _ours(results, "additive", "network", name) for name in ("Proposed", PAPER_MODE, "Unconstrained")}
    piu = {name: _ours(results, "additive", "network", name, "true_piu") for name in accuracy}
    text = "Proposed and PSCF are almost equally accurate"
    verdicts.append(alike("table_adm", "additive", text, accuracy["Proposed"], accuracy[PAPER_MODE]))
    for name in ("Proposed", PAPER_MODE):
        text = f"{name} is less accurate than Unconstrained"
        verdicts.append(printed_order("table_adm", "additive", text, accuracy["Unconstrained"], accuracy[name]))
        text = f"The PIU of {name} is much closer to zero than that of Unconstrained"
        less = 3.0 * piu[name].mean() < piu["Unconstrained"].mean()
        why = f"{piu[name].mean():.1f} % and {piu['Unconstrained'].mean():.1f} %"
        verdicts.append(Verdict("fig_adm", "additive", text, HOLDS if less else FAILS, why))
    drawn = {
        "additive": _accuracy_figure(summaries, claims, rates),
        "additive-effects": draw_effects(summaries, {"additive": PROBLEMS["additive"].title}),
    }
    return Outcome(tables, drawn, verdicts, (CHOICE, SPREAD, ADDITIVE))


def _oracle(results: Results) -> Outcome:
    tables, _, _ = _accuracy_tables(results, "table_bound", ("synth",), "network", "oracle")
    table = tables["oracle-synth"]
    piu = printed("table_bound", "synth", "piu")
    page = table.shown.copy()
    page.insert(
        4,
        "printed PIU",
        [f"{piu[n].value / 100:.3f} ± {(piu[n].sd or 0) / 100:.3f}" if n in piu else "" for n in page["method"]],
    )
    full = table.frame.assign(printed_piu=[_value(piu.get(name)) for name in table.frame["method"]])
    tables = {"oracle": Table(table.title, full, page)}
    claims = list(printed("table_bound", "synth", "accuracy").values())
    verdicts = _number_verdicts(results, claims, "network")
    for name, claim in piu.items():
        own = results.of("synth")
        own = own[own["method"] == name]
        traced = by_strength(own, "true_piu")
        verdicts.append(printed_number(claim, _ours(results, "synth", "network", name, "true_piu").to_numpy(), traced))
    accuracy = {name: _ours(results, "synth", "network", name) for name in ("Proposed", "Oracle")}
    shares = {name: _ours(results, "synth", "network", name, "true_piu") for name in ("Proposed", "Oracle")}
    gap = accuracy["Oracle"].mean() - accuracy["Proposed"].mean()
    verdicts.append(
        Verdict(
            "subsec-a:boundexp", "synth", "The bound is tight: Proposed and the Oracle differ little",
            HOLDS if abs(gap) <= 2.0 else FAILS,
            f"at equal strengths the Oracle is {gap:+.1f} points more accurate, at a PIU of "
            f"{shares['Oracle'].mean():.1f} % where Proposed has {shares['Proposed'].mean():.1f} %",
        )
    )  # fmt: skip
    paths = {}
    for name in ("Proposed", "FIO", "Oracle", *BEYOND):
        own = results.of("synth")
        own = own[own["method"] == name]
        if len(own):
            means = own.groupby("strength")[["accuracy", "true_piu"]].mean().reset_index()
            paths[name] = means.assign(accuracy=100.0 * means["accuracy"], true_piu=100.0 * means["true_piu"])
    points = {name: (printed("table_bound", "synth", "accuracy")[name], claim) for name, claim in piu.items()}
    drawn = {"oracle": draw_frontier(paths, points, results.rates("synth"))}
    return Outcome(tables, drawn, verdicts, (CHOICE, SPREAD))


def _extended(results: Results) -> Outcome:
    tables, summaries, rates = _accuracy_tables(results, "table4", ("latent",), "network", "extended")
    claims = [each for each in PRINTED if each.table == "table4"]
    verdicts = _number_verdicts(results, claims, "network")
    extended, source = "Proposed (extended)", "subsec-a:extendedexp"
    names = (extended, "Proposed", "FIO", "Remove (touched)", PAPER_MODE)
    accuracy = {name: _ours(results, "latent", "network", name) for name in names}
    rate = _ours(results, "latent", "network", extended, "positive_rate").mean()
    text = f"; it decides yes for {rate:.1f} %, and yes to all is right for {results.rates('latent')['majority']:.1f} %"
    for name in (PAPER_MODE, "Remove (touched)"):
        claim = f"Proposed_ex is more accurate than {name}"
        verdicts.append(printed_order(source, "latent", claim, accuracy[extended], accuracy[name], context=text))
    for column, unit in (("true_piu", "%"), ("true_sd", "points")):
        scale = 100.0 if column == "true_sd" else 1.0
        own = {name: scale * _ours(results, "latent", "network", name, column) for name in names}
        what = "PIU" if column == "true_piu" else "spread of conditional effects"
        for name in ("Proposed", "FIO"):
            claim = f"The {what} of Proposed_ex is closer to zero than that of {name}"
            verdicts.append(printed_order("fig-ue_ex", "latent", claim, own[name], own[extended], unit, text))
    for name in (PAPER_MODE, "Remove (touched)"):
        zero = {
            "true_piu": _ours(results, "latent", "network", name, "true_piu") / 100.0,
            "true_sd": _ours(results, "latent", "network", name, "true_sd"),
        }
        verdicts.append(small("fig-ue_ex", "latent", f"With {name} both statistics are zero", zero, ZERO))
    drawn = {
        "extended": _accuracy_figure(summaries, claims, rates),
        "extended-effects": draw_effects(summaries, {"latent": PROBLEMS["latent"].title}),
    }
    return Outcome(tables, drawn, verdicts, (CHOICE, SPREAD, EXTENDED))


CHOICE = (
    "The paper prints no strength of a penalty. Ours is the one most accurate on the training rows among those whose "
    f"penalty there, by the paper's weights, is at most {DELTA:g} (for FIO: an effect of at most {DELTA / 2:g} in "
    "size), or else the strongest; the Oracle has that of Proposed, and methods given S have 1. What follows PSCF in a "
    "table, but for the Oracle, is not in the paper: other groups, boosted propensities, and penalties given S (what "
    "both worlds share), with mechanisms learned from the training rows."
)
SPREAD = (
    "Behind ± stands the standard deviation over seeds: other rows drawn for a scenario, another split of packaged "
    "data. Means of groups of solutions that lie apart describe none of them: see the CSV file of each seed."
)
EFFECTS = (
    "Effects by weights are those of the paper's estimator on test rows. Of a scenario the true effects are computed "
    "from its equations with noise shared by both worlds; PSCF's are against the true model, as in the paper. Of "
    "packaged data the true ones are not known: one-step estimates with boosted nuisances are beside."
)
PATHS = "Each strength starts from the one above it, as the objective has two basins."
BOUND = "The test set bound has 5 % on each side: it is a 90 % interval."
EXTENDED = (
    "Proposed (extended) has the paper's bounds as they are printed, for unfair A -> Y, and its penalty on these, eq. "
    "(13); its strength is the most accurate among those with that penalty of at most "
    f"{DELTA:g} on the training rows. The corrected method calls A -> R -> Y unfair too, whose effect the formula "
    "bounds, and has the baseline as a point. With some 35 levels of M the upper ends are 1 whatever the classifier, "
    "so that the printed penalty is 2 - l0 - l1, small only for those that say yes to nearly all. The best classifier "
    "is that of A, R and M, without H."
)
ADDITIVE = "The paper gives no h for these data; that of its first model is used."


# -- the registry -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper: its title, the jobs that it needs, and what is made of their results."""

    title: str
    jobs: Callable[[Scale], list[Job]]
    assemble: Callable[[Results], Outcome]


def _all_network(scale: Scale) -> list[Job]:
    return [job for data in ("synth", "german", "adult") for job in scale.jobs(data, (*PAPER, *BEYOND))]


def _all_logistic(scale: Scale) -> list[Job]:
    methods = (*WITHOUT_PSCF, *WEIGHTS, "Proposed given S")
    return [job for data in ("synth", "german", "adult") for job in scale.jobs(data, methods, "logistic")]


def _bounded(scale: Scale) -> list[Job]:
    return [job for data in ("german", "adult") for job in scale.jobs(data, WITHOUT_PSCF, "logistic")]


def _two_penalties(scale: Scale) -> list[Job]:
    return [job for data in ("synth", "adult") for job in scale.jobs(data, ("Proposed", "FIO"))]


def _first_adult(scale: Scale) -> list[Job]:
    return [job for job in scale.jobs("adult", ("Proposed", "FIO")) if job.seed == 0]


EXTENDED_METHODS = (
    "Unconstrained", "Remove (touched)", "Proposed", "FIO", *BOUNDED, "PSCF", "Proposed, free group",
)  # fmt: skip
EXPERIMENTS = {
    "table1": Experiment("Table 1: test accuracy", _all_network, _table1),
    "fig2": Experiment("Figure 2: what the constraints allow", _two_penalties, _fig2),
    "fig4": Experiment("Figure 4: four statistics of unfair effects", _all_network, _fig4),
    "fig5": Experiment("Figure 5: the strength of the penalty, Adult", _first_adult, _fig5),
    "table-logistic": Experiment("Appendix: logistic regression", _all_logistic, _table_logistic),
    "testsetbound": Experiment("Appendix: test set bounds", _bounded, _testsetbound),
    "additive": Experiment(
        "Appendix: data with additive noise",
        lambda scale: scale.jobs("additive", (*PAPER[:4], "PSCF", "Proposed, free group", "Proposed given S")),
        _additive,
    ),
    "oracle": Experiment(
        "Appendix: the Oracle",
        lambda scale: scale.jobs("synth", ("Unconstrained", "Proposed", "FIO", "Oracle", *BEYOND)),
        _oracle,
    ),
    "extended": Experiment(
        "Appendix: the extension for latent confounders",
        lambda scale: scale.jobs("latent", EXTENDED_METHODS),
        _extended,
    ),
}
"""All experiments by name."""
