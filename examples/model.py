"""A classifier that every executor trains once: jobs share it, a new version takes over without a pause.

Start a worker, then this:

    envq worker default -w 2
    python examples/model.py
"""

from __future__ import annotations

from typing import Any

import envq


def train(neighbours: int) -> Any:
    """Imports here, so that only workers need scikit-learn."""
    from sklearn.datasets import load_iris  # noqa: PLC0415 - see above
    from sklearn.neighbors import KNeighborsClassifier  # noqa: PLC0415 - see above

    flowers = load_iris()
    return KNeighborsClassifier(neighbours).fit(flowers.data, flowers.target)


def first() -> Any:
    return train(1)


def second() -> Any:
    return train(5)


def unchanged(model: Any) -> Any:
    """A job only asks the model, so there is nothing to put back."""
    return model


@envq.task(timeout=30)
def classify(sizes: list[float]) -> tuple[int, int]:
    """The kind of flower, and how many neighbours the model asked."""
    model = envq.env.flowers
    return int(model.predict([sizes])[0]), model.n_neighbors


def main() -> None:
    for train_version in (first, second):
        envq.env.flowers = envq.EnvironmentVariable(train_version, unchanged, driver="never")
        jobs = classify.map([[5.1, 3.5, 1.4, 0.2], [5.9, 3.0, 4.2, 1.5], [6.3, 3.3, 6.0, 2.5]])
        for kind, neighbours in envq.get(jobs, timeout=60):
            print(f"kind {kind}, by {neighbours} neighbour(s)")


if __name__ == "__main__":
    main()
