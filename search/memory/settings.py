"""What can be set for each memory solver: the command line, the API and the browser's form all read these."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from accelsim.errors import InputError


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    summary: ClassVar[str]


class AllSlow(_Settings):
    """Everything in slow memory"""

    summary: ClassVar[str] = "No search: every buffer stays in slow memory. The line that all others must beat."
    method: Literal["all-slow"] = "all-slow"


class Greedy(_Settings):
    """Greedy"""

    summary: ClassVar[str] = (
        "Buffers in order of benefit per byte, each at the best-fitting offset for its whole life; "
        "kept only if the simulated latency falls."
    )
    method: Literal["greedy"] = "greedy"


class XlaStyle(_Settings):
    """XLA-style"""

    summary: ClassVar[str] = (
        "XLA's memory-space assignment, rebuilt: buffers by boundedness, one segment between two uses at a time, "
        "prefetches and evictions where copy resources allow, retries and repacking."
    )
    method: Literal["xla-style"] = "xla-style"
    min_overlap_ratio: float = Field(
        default=0.8, ge=0, le=10, title="Least overlap", description="Least time a prefetch must overlap, in copy times"
    )
    preferred_overlap_ratio: float = Field(
        default=1.5, ge=0, le=20, title="Preferred overlap", description="Time a prefetch should overlap, in copy times"
    )
    max_overlap_ratio: float = Field(
        default=10.0,
        gt=0,
        le=100,
        title="Longest residence",
        description="Longest wait of a buffer between uses, in times to copy the whole fast memory",
    )
    retries: int = Field(
        default=1,
        ge=0,
        le=20,
        title="Retries",
        description="Attempts after the first; the last accepts evictions without copy time",
    )
    repacks: int = Field(
        default=10,
        ge=0,
        le=1000,
        title="Repacks",
        description="How often all buffers may be packed anew when one finds no room",
    )

    @model_validator(mode="after")
    def _ordered(self) -> XlaStyle:
        if not self.min_overlap_ratio <= self.preferred_overlap_ratio:
            raise ValueError("min_overlap_ratio is above preferred_overlap_ratio")
        return self


class Annealing(_Settings):
    """Simulated annealing"""

    summary: ClassVar[str] = (
        "Starts from greedy and changes the order in which buffers are placed, and at which gaps they leave fast "
        "memory; several independent chains, cooled again and again in cycles of doubling length. Never worse than "
        "greedy or XLA-style, which are tried first."
    )
    method: Literal["annealing"] = "annealing"
    chains: int = Field(
        default=2, ge=1, le=64, title="Chains", description="Independent chains; each can use one processor"
    )
    first_cycle: int = Field(
        default=1000,
        ge=1,
        le=10**7,
        title="First cycle",
        description="Moves of the first cooling; each later one has twice as many",
    )
    hot: float = Field(
        default=0.1,
        gt=0,
        le=1000,
        title="Hot",
        description="Temperature at the start of a cycle, in shares of the possible gain of one buffer on average",
    )
    cold: float = Field(
        default=0.002, gt=0, le=1000, title="Cold", description="Temperature at the end of a cycle, in the same unit"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Annealing:
        if self.cold > self.hot:
            raise ValueError("cold is above hot")
        return self


Settings = Annotated[AllSlow | Greedy | XlaStyle | Annealing, Field(discriminator="method")]
METHODS: tuple[type[AllSlow | Greedy | XlaStyle | Annealing], ...] = (AllSlow, Greedy, XlaStyle, Annealing)
_ADAPTER: TypeAdapter[Settings] = TypeAdapter(Settings)


def parse_settings(data: object) -> Settings:
    """Read settings from a JSON object.

    Raises:
        InputError: a field is unknown or out of range; the message names it.
    """
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"settings: {place}: {first['msg']}", code="settings") from error


def catalogue() -> list[dict[str, Any]]:
    """Describe each method for a form: method, title, summary, JSON schema and defaults."""
    entries = []
    for model in METHODS:
        schema = model.model_json_schema()
        defaults = model().model_dump()
        entry = {"method": defaults["method"], "title": model.__doc__, "summary": model.summary}
        entries.append({**entry, "schema": schema, "defaults": defaults})
    return entries
