"""What the worker does for the web app: a model that is loaded once in each executor, and the job that uses it.

The web app and the worker import this module; nothing here talks to Redis when it is imported.
"""

from __future__ import annotations

from collections import Counter

import envq

EXAMPLES = {
    "praise": ["what a lovely day", "works great and looks good", "I love it", "a good and helpful answer"],
    "complaint": ["this is terrible", "it broke and nobody answers", "I hate waiting", "a bad and slow reply"],
}


class Model:
    """Words and how often each label's examples have them; stands for anything that takes long to load."""

    def __init__(self) -> None:
        self.counts = {label: Counter(" ".join(texts).lower().split()) for label, texts in EXAMPLES.items()}
        self.seen: list[str] = []

    def classify(self, text: str) -> str:
        """The label whose examples share most words with the text. Remembers the text, as real models do."""
        words = text.lower().split()
        self.seen.append(text)
        return max(self.counts, key=lambda label: sum(self.counts[label][word] for word in words))


def forget(model: Model) -> Model:
    """Put the model back: nobody's text is left in it for the next job."""
    model.seen.clear()
    return model


envq.env.sentiment = envq.EnvironmentVariable(Model, forget)


@envq.task(timeout=10.0, result_ttl=600)
def classify(text: str) -> dict[str, str | int]:
    """Runs in a worker."""
    model = envq.env.sentiment
    return {"label": model.classify(text), "texts_in_the_model": len(model.seen)}
