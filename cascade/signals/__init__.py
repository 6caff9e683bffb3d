"""Signals of a query: cheap numbers about scores, orders and text that decisions read. Pure, numpy only.

Only what is asked for is computed, and each channel is sorted once. What a signal is called, its unit,
range, formula and source stand in one table, :data:`cascade.signals.catalogue.SIGNALS`.
"""

from cascade.signals.catalogue import CLASS, SCRIPT, SIGNALS, Family, Signal, resolve, signal_names
from cascade.signals.compute import Signals, compute
from cascade.signals.history import History, Seen
from cascade.signals.query import classify, count_identifiers
from cascade.signals.script import Script, main_script
from cascade.signals.view import Inputs

__all__ = [
    "CLASS",
    "SCRIPT",
    "SIGNALS",
    "Family",
    "History",
    "Inputs",
    "Script",
    "Seen",
    "Signal",
    "Signals",
    "classify",
    "compute",
    "count_identifiers",
    "main_script",
    "resolve",
    "signal_names",
]
