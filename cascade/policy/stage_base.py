"""What every stage of a release declares."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from cascade.policy.frozen import Frozen
from cascade.types import ScoreSpace

__all__ = ["StageBase"]


class StageBase(Frozen):
    """What every stage declares: its fingerprint."""

    orders: ClassVar[bool] = False
    """Whether it orders a whole list, and gives no document a score of its own."""

    model: str = Field(min_length=1, description="Name of the model, as the server knows it")
    revision: str | None = Field(default=None, description="Revision of the weights")
    quantization: str = Field(default="none", description="How the weights are quantised")
    dtype: str = Field(default="float32", description="Type that the model computes in")
    engine: str = Field(description="Engine and version, for example tei/1.9")
    serializer: str = Field(default="passthrough@1", description="Name and version of the serializer")
    tokenizer_revision: str | None = Field(default=None, description="Revision of the tokenizer")
    max_length: int = Field(default=512, ge=8, le=131072, description="Longest pair in tokens")
    score_space: Annotated[ScoreSpace, Field(strict=False)] = Field(
        default=ScoreSpace.LOGIT, description="What the raw scores are"
    )

    @model_validator(mode="after")
    def _space_of_kind(self) -> Self:
        if self.orders is not (self.score_space is ScoreSpace.RANK):
            raise ValueError(
                "score_space: a stage that orders lists gives ranks"
                if self.orders
                else "score_space: rank is what a stage gives that orders whole lists; this one scores pairs"
            )
        return self
