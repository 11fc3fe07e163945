"""Pictures of a bank as Altair charts: ``from concal import plot; plot.curves(bank, ["item-17"])``.

Altair, because a chart is then an object that can be changed, layered and tested, without a window or a global state;
it takes polars tables as they are, and saves as HTML or JSON without further packages. It is an extra:
``pip install 'concal[plot]'``.
"""

from concal.plot.charts import abilities, agreement, curves, drift, information, links

__all__ = ["abilities", "agreement", "curves", "drift", "information", "links"]
