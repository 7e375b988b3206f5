"""What the paper prints in its tables: claims to test, as data, each with the label of its table.

Numbers that only figures show are left out: they cannot be read off exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PRINTED", "TEST_ROWS", "Printed", "printed"]


@dataclass(frozen=True)
class Printed:
    """A number of the paper, in %: mean and standard deviation over 10 runs, or a single value.

    ``table`` is the label of its table in the paper's source; ``quantity`` is accuracy, error or piu; ``interval`` is
    the test set bound printed beside it.
    """

    table: str
    data: str
    method: str
    value: float
    sd: float | None = None
    quantity: str = "accuracy"
    interval: tuple[float, float] | None = None


TEST_ROWS = {"synth": 1000, "additive": 1000, "latent": 1000, "german": 100, "adult": 10_870}
"""The rows that the paper tests on."""

PRINTED = (
    Printed("table1", "synth", "Proposed", 80.0, 0.9),
    Printed("table1", "synth", "FIO", 84.8, 0.6),
    Printed("table1", "synth", "PSCF", 74.8, 1.6),
    Printed("table1", "synth", "Unconstrained", 88.2, 0.9),
    Printed("table1", "synth", "Remove", 76.9, 1.3),
    Printed("table1", "german", "Proposed", 75.0),
    Printed("table1", "german", "FIO", 78.0),
    Printed("table1", "german", "PSCF", 76.0),
    Printed("table1", "german", "Unconstrained", 81.0),
    Printed("table1", "german", "Remove", 73.0),
    Printed("table1", "adult", "Proposed", 75.2),
    Printed("table1", "adult", "FIO", 81.2),
    Printed("table1", "adult", "PSCF", 73.4),
    Printed("table1", "adult", "Unconstrained", 83.2),
    Printed("table1", "adult", "Remove", 74.7),
    Printed("table_logistic", "synth", "Proposed", 78.2, 1.5),
    Printed("table_logistic", "synth", "FIO", 83.4, 1.2),
    Printed("table_logistic", "synth", "Unconstrained", 87.8, 0.8),
    Printed("table_logistic", "synth", "Remove", 76.1, 0.9),
    Printed("table_logistic", "german", "Proposed", 76.0),
    Printed("table_logistic", "german", "FIO", 77.5),
    Printed("table_logistic", "german", "Unconstrained", 78.8),
    Printed("table_logistic", "german", "Remove", 73.8),
    Printed("table_logistic", "adult", "Proposed", 75.2),
    Printed("table_logistic", "adult", "FIO", 79.0),
    Printed("table_logistic", "adult", "Unconstrained", 79.7),
    Printed("table_logistic", "adult", "Remove", 74.4),
    Printed("table_testsetbound", "german", "Proposed", 24.0, None, "error", (18.0, 32.1)),
    Printed("table_testsetbound", "german", "FIO", 22.5, None, "error", (17.1, 31.0)),
    Printed("table_testsetbound", "german", "Unconstrained", 21.2, None, "error", (15.4, 28.8)),
    Printed("table_testsetbound", "german", "Remove", 26.2, None, "error", (19.8, 34.2)),
    Printed("table_testsetbound", "adult", "Proposed", 24.8, None, "error", (24.1, 25.5)),
    Printed("table_testsetbound", "adult", "FIO", 21.0, None, "error", (20.4, 21.7)),
    Printed("table_testsetbound", "adult", "Unconstrained", 20.3, None, "error", (19.7, 20.9)),
    Printed("table_testsetbound", "adult", "Remove", 26.6, None, "error", (25.9, 27.3)),
    Printed("table_adm", "additive", "Proposed", 72.5, 1.1),
    Printed("table_adm", "additive", "PSCF", 72.5, 0.4),
    Printed("table_adm", "additive", "Unconstrained", 80.0, 1.3),
    Printed("table_bound", "synth", "Proposed", 80.0, 0.9),
    Printed("table_bound", "synth", "Oracle", 78.7, 0.9),
    Printed("table_bound", "synth", "Proposed", 5.04, 3.25, "piu"),
    Printed("table_bound", "synth", "Oracle", 2.63, 0.90, "piu"),
    Printed("table4", "latent", "Proposed_ex", 95.7, 0.5),
    Printed("table4", "latent", "Proposed", 96.1, 0.6),
    Printed("table4", "latent", "FIO", 96.3, 0.6),
    Printed("table4", "latent", "PSCF", 93.8, 0.9),
    Printed("table4", "latent", "Unconstrained", 97.2, 0.6),
    Printed("table4", "latent", "Remove", 94.0, 0.6),
)
"""All of them."""


def printed(table: str, data: str | None = None, quantity: str | None = None) -> dict[str, Printed]:
    """Return the numbers of a table by method, for a data set and a quantity."""
    return {
        each.method: each
        for each in PRINTED
        if each.table == table and data in (None, each.data) and quantity in (None, each.quantity)
    }
