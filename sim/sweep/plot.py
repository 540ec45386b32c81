"""The plot of a sweep."""

from ..extra import require

__all__ = ["choose", "draw"]

WIDE = 32
"""From the least to the largest value of a logarithmic abscissa."""


def _number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def choose(rows, parameters, x=None, y=None):
    """Columns of the plot: the first parameter with more than one number, and the first result that is a number; None
    if there is none.
    """
    if x is None:
        varied = [n for n in parameters if len({row.get(n) for row in rows}) > 1 and _number(rows[0].get(n))]
        x = next((name for name in varied if name != "seed"), next(iter(varied), None))
    if y is None:
        known = {"point", "status", "seconds", "tick", "seed", *parameters}
        y = next((name for row in rows for name in row if name not in known and _number(row[name])), "seconds")
    return x, y


def draw(rows, parameters, path, x=None, y=None):
    """Draws ``y`` over ``x``, a line for each combination of the other parameters: the mean over the seeds, and a band
    from the least to the largest. Returns both names, or None if there is nothing to draw.
    """
    require("matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    x, y = choose(rows, parameters, x, y) if rows else (None, None)
    lines = {}
    others = [name for name in parameters if name not in (x, "seed") and len({row.get(name) for row in rows}) > 1]
    for row in rows:
        if x is not None and _number(row.get(x)) and _number(row.get(y)):
            label = ", ".join(f"{name} {row.get(name)}" for name in others)
            lines.setdefault(label, {}).setdefault(row[x], []).append(row[y])
    if not lines:
        return None
    figure, axes = plt.subplots(figsize=(8, 5), dpi=110)
    for label, values in lines.items():
        places = sorted(values)
        mean = [sum(values[place]) / len(values[place]) for place in places]
        (drawn,) = axes.plot(places, mean, marker="o", ms=4, label=label or None)
        if any(len(found) > 1 for found in values.values()):
            low, high = ([function(values[place]) for place in places] for function in (min, max))
            axes.fill_between(places, low, high, color=drawn.get_color(), alpha=0.18, linewidth=0)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    places = [place for values in lines.values() for place in values]
    if min(places) > 0 and max(places) >= WIDE * min(places):
        axes.set_xscale("log", base=2)
    if any(lines):
        axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return x, y
