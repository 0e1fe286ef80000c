"""A site: what `site.yaml` holds.

Times are in seconds, memory in MiB (Slurm's M), lists of nodes in Slurm's form ``n[1-4]``. A time may also be written
as Slurm writes limits (``2-12:00:00``) or with a unit (``24h``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from hdsim.errors import ConfigError, nearest
from hdsim.site.formats import UNLIMITED, parse_time
from hdsim.util.inputs import parse_yaml
from hdsim.util.text import shown
from hdsim.util.units import parse_duration

#: Parameters of SchedulerParameters that are simulated, with Slurm's defaults.
PARAMETERS: dict[str, int] = {
    "batch_sched_delay": 3,
    "bf_interval": 30,
    "bf_max_job_array_resv": 20,
    "bf_max_job_part": 0,
    "bf_max_job_start": 0,
    "bf_max_job_test": 500,
    "bf_max_job_user": 0,
    "bf_min_age_reserve": 0,
    "bf_min_prio_reserve": 0,
    "bf_resolution": 60,
    "bf_window": 1440,
    "bf_window_linear": 0,
    "default_queue_depth": 100,
    "partition_job_depth": 0,
    "sched_interval": 60,
}


def _seconds(value: Any) -> Any:
    """Reads a time of a site file."""
    if not isinstance(value, str):
        return math.inf if value is None else value
    if value.upper() in (*UNLIMITED, "NULL"):
        return math.inf
    try:
        return parse_time(value) if ":" in value or "-" in value else parse_duration(value)
    except ValueError:
        raise ValueError(f"expected seconds, 24h, 2-12:00:00 or UNLIMITED, got {shown(value)}") from None


def _oversubscribe(value: str) -> str:
    if not re.fullmatch(r"NO|EXCLUSIVE|(YES|FORCE)(:[1-9]\d{0,3})?", value):
        raise ValueError(f"expected NO, EXCLUSIVE, YES:n or FORCE:n, got {shown(value)}")
    return value


def _word(false: str, true: str) -> BeforeValidator:
    """Takes what YAML makes of words such as NO and OFF for these words."""

    def read(value: Any) -> Any:
        return (true if value else false) if isinstance(value, bool) else value

    return BeforeValidator(read)


def _or_null(value: float) -> float | None:
    return None if math.isinf(value) else value


#: Seconds; null and UNLIMITED are infinite.
Seconds = Annotated[float, BeforeValidator(_seconds), PlainSerializer(_or_null), Field(ge=0)]
#: Amounts by TRES, memory in MiB: ``cpu``, ``mem``, ``node``, ``billing``, ``gres/gpu``, ``gres/gpu:a100`` ...
Tres = dict[str, float]
#: The most of something, null for no limit.
Count = Annotated[int, Field(ge=0)] | None


class Part(BaseModel):
    """A part of a site; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, ser_json_inf_nan="strings")


_Part = TypeVar("_Part", bound=Part)
#: Lines before and after the keys that an import writes: a file with the first one only is cut off.
_BEGIN, _END = "# begin of hdsim site import", "# end of hdsim site import"


class NodePower(Part):
    """Power of a node in W, by default that of a common server, and the times of its changes of state.

    Cores and GPUs that do not compute draw a share of it by their P-states (:data:`hdsim.platform.power.PSTATES`); a
    node that goes down or boots draws what it does idle.
    """

    on: float = Field(default=100, ge=0)  # beside its cores and GPUs
    core: float = Field(default=5, ge=0)  # of each core that computes
    gpu: float = Field(default=300, ge=0)  # of each GPU that computes
    off: float = Field(default=10, ge=0)
    shutdown: Annotated[Seconds, Field(lt=math.inf)] = 60.0
    boot: Annotated[Seconds, Field(lt=math.inf)] = 300.0


class NodeType(Part):
    """Equal nodes of a line ``NodeName=`` of slurm.conf."""

    nodes: str
    cpus: int = Field(1, ge=1)  # logical processors, which Slurm allocates
    sockets: int = Field(1, ge=1)
    cores_per_socket: int = Field(1, ge=1)
    threads_per_core: int = Field(1, ge=1)
    memory: float = Field(1, ge=0)  # RealMemory
    gres: dict[str, int] = {}  # number by name and type, such as gpu:a100
    features: list[str] = []
    weight: int = Field(1, ge=0)
    state: str = "UNKNOWN"
    power: NodePower | None = None  # null: not known, and none in platform.json


class Partition(Part):
    """A line ``PartitionName=`` of slurm.conf."""

    nodes: str = ""  # ALL for every node
    default: bool = False
    state: Literal["UP", "DOWN", "DRAIN", "INACTIVE"] = "UP"
    max_time: Seconds = math.inf
    default_time: Seconds | None = None  # null: the longest
    min_nodes: int = Field(0, ge=0)
    max_nodes: Count = None
    max_cpus_per_node: Count = None
    priority_tier: int = Field(1, ge=0)
    priority_job_factor: int = Field(1, ge=0)
    preempt_mode: Annotated[str | None, _word("OFF", "ON")] = None
    grace_time: Seconds = 0.0
    oversubscribe: Annotated[str, _word("NO", "YES"), AfterValidator(_oversubscribe)] = (
        "NO"  # NO, EXCLUSIVE, YES:n, FORCE:n; YES is YES:4
    )
    exclusive_user: bool = False
    least_loaded: bool = False  # LLN
    qos: str | None = None  # whose limits hold for the jobs of the partition
    allow_accounts: list[str] | None = None
    deny_accounts: list[str] = []
    allow_qos: list[str] | None = None
    deny_qos: list[str] = []
    allow_groups: list[str] | None = None
    default_memory_per_cpu: float | None = None
    default_memory_per_node: float | None = None
    max_memory_per_cpu: float | None = None
    max_memory_per_node: float | None = None
    billing_weights: dict[str, float] = {}  # TRESBillingWeights, memory per MiB

    @property
    def forces(self) -> bool:
        """Whether jobs share CPUs whether they ask for it or not (OverSubscribe=FORCE:n)."""
        return self.oversubscribe.startswith("FORCE")

    @property
    def most_on_cpu(self) -> int:
        """Most jobs that share a CPU (OverSubscribe=YES:n, FORCE:n)."""
        word, _, number = self.oversubscribe.partition(":")
        return int(number or 4) if word in ("YES", "FORCE") else 1


class Limits(Part):
    """Limits of a QOS or of an association (an account, or a user in an account); null for none.

    Those that begin with ``grp`` hold for all jobs of the association and of those below it together, ``max_jobs`` and
    ``max_submit`` for those of one user, and the others for one job.
    """

    grp_tres: Tres = {}
    grp_tres_mins: Tres = {}  # used by ended and running jobs, in TRES-minutes
    grp_tres_run_mins: Tres = {}  # left to running jobs
    grp_jobs: Count = None
    grp_submit: Count = None
    grp_wall: Seconds = math.inf
    max_tres: Tres = {}
    max_tres_per_node: Tres = {}
    max_tres_mins: Tres = {}
    max_wall: Seconds = math.inf
    max_jobs: Count = None
    max_submit: Count = None
    max_tres_per_user: Tres = {}  # of a QOS, as the following
    max_tres_per_account: Tres = {}
    max_jobs_per_account: Count = None
    max_submit_per_account: Count = None
    min_tres: Tres = {}


class Qos(Part):
    """A QOS."""

    priority: int = Field(0, ge=0)
    preempt: list[str] = []  # QOS whose jobs those of this one preempt
    preempt_mode: Annotated[str | None, _word("OFF", "ON")] = None  # null: that of the cluster
    preempt_exempt_time: Seconds | None = None  # null: that of the cluster
    grace_time: Seconds = 0.0
    usage_factor: float = Field(1.0, ge=0)
    usage_threshold: float | None = None
    flags: list[str] = []
    limits: Limits = Limits()

    def has(self, flag: str) -> bool:
        """Whether the QOS has a flag, in capitals or not."""
        return flag.lower() in (one.lower() for one in self.flags)


class Association(Part):
    """An account, or a user in an account; in order of creation."""

    account: str
    user: str = ""  # empty for the account itself
    partition: str = ""
    parent: str = ""  # account above an account, empty for root
    shares: int | Literal["parent"] = 1
    priority: Count = None  # null: that of the account above
    qos: list[str] = []
    default_qos: str | None = None
    limits: Limits = Limits()


class Reservation(Part):
    """A reservation: nodes that only some jobs may use from a time to another."""

    nodes: str = ""
    start: float  # in seconds since 1970
    end: float  # in seconds since 1970
    users: list[str] = []
    accounts: list[str] = []
    partition: str | None = None
    cores: int | None = None  # of part of the nodes
    licenses: dict[str, int] = {}
    flags: list[str] = []


class Priority(Part):
    """Slurm's Priority* parameters."""

    type: Literal["basic", "multifactor"] = "multifactor"
    weight_age: float = 0
    weight_association: float = 0
    weight_fair_share: float = 0
    weight_job_size: float = 0
    weight_partition: float = 0
    weight_qos: float = 0
    weight_tres: dict[str, float] = {}
    max_age: Seconds = 7 * 86_400.0
    calculation_period: Annotated[Seconds, Field(gt=0)] = 300.0  # PriorityCalcPeriod
    decay_half_life: Seconds = 7 * 86_400.0  # 0: usage does not decay
    usage_reset_period: str = "NONE"
    favor_small: bool = False
    flags: list[str] = []  # PriorityFlags, such as NO_FAIR_TREE and SMALL_RELATIVE_TO_TIME
    fair_share_dampening: float = Field(default=1.0, gt=0)


class Preemption(Part):
    """Slurm's Preempt* parameters."""

    type: Literal["none", "qos", "partition_prio"] = "none"
    mode: Annotated[str, _word("OFF", "ON")] = "OFF"
    gang: bool = False
    exempt_time: Seconds = 0.0


class Scheduler(Part):
    """Slurm's SchedulerType, SelectType and SchedulerParameters."""

    type: Literal["builtin", "backfill"] = "backfill"
    select: Literal["cons_tres", "cons_res", "linear"] = "cons_tres"
    select_parameters: list[str] = ["CR_Core"]
    topology: Literal["none", "tree"] = "none"
    topology_parameters: list[str] = []  # TopologyParam
    enforce: list[str] = []  # AccountingStorageEnforce
    enforce_part_limits: Annotated[str, _word("NO", "YES")] = "NO"
    parameters: dict[str, Any] = {}  # SchedulerParameters by name, true for those without value

    @property
    def consumable(self) -> set[str]:
        """Resources of nodes that jobs take, such as CORE and MEMORY of CR_Core_Memory."""
        found = (
            re.fullmatch(r"CR_(CPU|CORE|SOCKET|MEMORY)(_MEMORY)?", text.upper()) for text in self.select_parameters
        )
        return {word for match in found if match for word in match[0].split("_")[1:]}

    @property
    def enforces_limits(self) -> bool:
        """Whether limits of QOS and associations hold; 2 is the older form of the word."""
        return bool({"limits", "2", "safe", "all"} & set(self.enforce))

    @property
    def is_safe(self) -> bool:
        """Whether jobs only start if they can run to their limits without exceeding those of TRES-minutes."""
        return bool({"safe", "all"} & set(self.enforce))


class Switch(Part):
    """A switch of topology.conf."""

    nodes: str = ""
    switches: list[str] = []


class Site(Part):
    """A site."""

    name: str = "site"
    time_zone: str = "UTC"
    begin: float = 0.0  # seconds since 1970 of the first submission of its jobs
    nodes: dict[str, NodeType] = {}
    down: str = ""  # nodes out of service
    partitions: dict[str, Partition] = {}
    qos: dict[str, Qos] = {}
    associations: list[Association] = []
    reservations: dict[str, Reservation] = {}
    licenses: dict[str, int] = {}
    priority: Priority = Priority()
    preemption: Preemption = Preemption()
    slurm: Scheduler = Scheduler()
    switches: dict[str, Switch] = {}

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that name none."""
        return next((name for name, one in self.partitions.items() if one.default), None)

    @property
    def whole_nodes(self) -> list[bool]:
        """Whether the jobs of each partition take whole nodes: OverSubscribe=EXCLUSIVE, select/linear."""
        linear = self.slurm.select == "linear"
        return [linear or one.oversubscribe.startswith("EXCLUSIVE") for one in self.partitions.values()]

    def to_yaml(self) -> str:
        """Returns the text of a site file; values that are defaults are left out."""
        given = self.model_dump(exclude_defaults=True)
        return f"{_BEGIN}\n{yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=120)}{_END}\n"


def load_site(path: str | Path) -> Site:
    """Reads a site file, or that of a folder.

    Raises:
        ConfigError: There is no such file, it is cut off or no YAML, or a key or a value is not allowed; each fault is
            a line.
    """
    path = Path(path)
    file = path / "site.yaml" if path.is_dir() else path
    return site_of(read_document(file, "a site, a folder with site.yaml or that file", str(path)), str(file))


def read_document(file: Path, expected: str, given: str) -> Any:
    """Returns the document of a YAML file.

    Args:
        file: The file.
        expected: The kind of input, for the message where there is no such file.
        given: The path as the user gave it.

    Raises:
        ConfigError: The file cannot be read, is cut off or is no YAML.
    """
    try:
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        if _BEGIN in lines and _END not in lines:
            expected = f"expected the line '{_END}' as 'hdsim site import' writes"
            raise ConfigError(f"{expected}, got a file that is cut off after line {len(lines)}", where=str(file))
        return parse_yaml(text, ConfigError, "YAML", file)
    except OSError as error:
        raise ConfigError(f"expected {expected}: {error.strerror}", where=given) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"expected YAML: {' '.join(str(error).split())}", where=str(file)) from None


#: Keys beside the rules: the part of the log that is replayed, see :func:`hdsim.site.usage.part_of_log`.
REPLAY = "replay"


def settings_of(path: str | Path) -> dict[str, Any]:
    """Returns the rules of a site file or a folder with one, defaults included, beside its ``path`` and `REPLAY`.

    The associations, of which a site may have thousands, are left out; see `site_of_settings`.

    Raises:
        ConfigError: See `load_site`.
    """
    settings = load_site(path).model_dump(exclude={"associations"})
    settings["slurm"]["parameters"] = PARAMETERS | settings["slurm"]["parameters"]
    return {"path": str(Path(path).resolve()), REPLAY: dict.fromkeys(("begin", "end", "usage")), **settings}


def site_of_settings(settings: Mapping[str, Any], where: str) -> Site:
    """Returns a site from its rules, with the associations of the file at ``path``, if there is one.

    Raises:
        ConfigError: See `load_site`.
    """
    given = {key: value for key, value in settings.items() if key not in ("path", REPLAY)}
    if settings.get("path") and "associations" not in given:
        given["associations"] = load_site(settings["path"]).associations
    return site_of(given, where)


def site_of(document: Any, where: str) -> Site:
    """Returns a site from its document; see `load_site`."""
    return part_of(Site, document, where, "partitions and nodes")


def part_of(model: type[_Part], document: Any, where: str, keys: str, place: str = "") -> _Part:
    """Returns a part of a site, or another model, from its document.

    Args:
        model: The model.
        document: Keys and values.
        where: Origin of the document, for error messages.
        keys: Some keys in words, for the message where the document has none.
        place: Key of the document within its origin, if it is a part of it.

    Raises:
        ConfigError: A key or a value is not allowed; each fault is a line.
    """
    if not isinstance(document, Mapping):
        told = f"{where}: {place}" if place else where
        raise ConfigError(f"expected keys such as {keys}, got {shown(document)}", where=told)
    try:
        return model.model_validate(dict(document))
    except ValidationError as error:
        prefix = f"{where}: {place}." if place else f"{where}: "
        faults = [ConfigError(text, where=f"{prefix}{key}") for key, text in _faults(model, error)]
        raise ConfigError.many(faults) from None


def _faults(model: type[Part], error: ValidationError) -> list[tuple[str, str]]:
    """Key and text of each fault of a document."""
    found = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            allowed = sorted(_model_at(model, fault["loc"][:-1]).model_fields)
            name = str(fault["loc"][-1])
            text = f"unknown key{nearest(name, allowed)}; allowed: {', '.join(allowed)}"
        elif fault["type"] == "missing":
            text = "expected a value, got none"
        else:
            text = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
            text = text if ", got " in text else f"{text}, got {shown(fault['input'])}"
        found.append((key, text))
    return found


def _model_at(model: type[Part], place: tuple[int | str, ...]) -> type[Part]:
    """The model that stands at a place of a document."""
    for part in place:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        for candidate in (annotation, *getattr(annotation, "__args__", ())):
            if isinstance(candidate, type) and issubclass(candidate, Part):
                model = candidate
    return model
