"""The race detector: two programs of one launch, one byte, no order between them, and at least one of them writes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace import events
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.clients.races.actors import Actor, Kind, acquires, kind_of_site, releases
from tritontrace.clients.races.conflicts import conflicts_of, wipes_of
from tritontrace.clients.races.explain import LaneFaults, findings_of
from tritontrace.clients.races.forms import Form, Shapes, forms_of, merge_runs
from tritontrace.clients.races.log import Region, repeated
from tritontrace.clients.races.ordering import SyncLog
from tritontrace.clients.races.places import Places
from tritontrace.clients.races.repeats import Repeats
from tritontrace.clients.races.shadow import Rewrite, collide, collide_as_one, lanes_distinct
from tritontrace.engines.ir.values import Separable

if TYPE_CHECKING:
    from tritontrace.findings import Finding
    from tritontrace.launch import Launch

__all__ = ["RaceDetector"]

Int64s = npt.NDArray[np.int64]


class RaceDetector(Client):
    """Finds accesses of two programs to the same memory that nothing orders, at least one of which writes plainly.

    It watches the one interleaving that the engine runs and judges by order, not by luck: two accesses are ordered only
    if a chain of release and acquire atomics (of scope ``gpu`` or ``sys``) leads from one to the other. Locks, semaphores, grid
    barriers, last-block reductions and flags are clean when they are right. Stores of equal values are reported as
    `benign`, or not at all with ``benign=False``. A store of which two lanes write different values to one element is a
    race of one program with itself.

    With ``dry_run=True`` nothing is executed unless another client of the launch wants that (or data decides what is accessed):
    races are then judged by addresses alone, and of equal values nothing is known.
    """

    name = "race_detector"

    def __init__(self, benign: bool = True, *, dry_run: bool = False) -> None:
        self.benign = benign
        self.dry_run = dry_run
        self.repeatable = dry_run and type(self) is RaceDetector
        self._watch: _Watch | None = None

    def for_launch(self, launch: Launch) -> RaceDetector:
        """A fresh detector with the same settings: launches may run at once, and are ordered among each other."""
        fresh = copy.copy(self)  # not a call of the class: a subclass may be made differently
        fresh._watch = _Watch(launch)
        return fresh

    def pre_run_callback(self, launch: Launch) -> None:
        """Begins with the launch as it is about to run."""
        self._watch = _Watch(launch)

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """Listens to every access of memory."""
        if op is events.Load:
            return OpCallbacks(before=lambda event: self._watching(event).load(event))
        if op is events.Store:
            return OpCallbacks(
                before=lambda event: self._watching(event).store(event), after=lambda event: self._watching(event).stored()
            )
        if op is events.Atomic:
            return OpCallbacks(after=lambda event: self._watching(event).atomic(event))
        return None

    def finalize(self) -> list[Finding]:
        """One finding per access site and tensor."""
        watch, self._watch = self._watch, None
        if watch is None:
            return []
        found = watch.findings(self.name)
        return found if self.benign else [finding for finding in found if not finding.benign]

    def _watching(self, event: events.Event) -> _Watch:
        if self._watch is None:
            self._watch = _Watch(event.launch)
        return self._watch


class _Site:
    """What is known of one access site in one launch: `region` is None where its pointers may lead anywhere.

    `kinds` are the kinds of access that have to be logged, `apart` whether stores must keep their own time, `loads` the last
    loads, which may go on.
    """

    __slots__ = ("apart", "kinds", "loads", "nowhere", "reads", "region", "site")

    def __init__(self, site: events.Site, region: Region | None, kinds: frozenset[Kind], apart: bool, nowhere: bool) -> None:
        self.site = site
        self.reads = Kind.LOOK if site.attributes.get("volatile") else Kind.LOAD
        self.region = region
        self.kinds = kinds
        self.apart = apart
        self.nowhere = nowhere
        self.loads: Repeats | None = None


class _Watch:
    """One launch under observation."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.places = Places(launch)
        self.alone = launch.n_programs <= 1
        self.actors: list[Actor] = []
        self.faults: dict[int, LaneFaults] = {}
        self.time = 0
        self.sync: SyncLog | None = None
        self.weak: dict[int, tuple[events.Site, str, str]] = {}
        self._sites: dict[int, _Site] = {}
        self._actor_of: dict[tuple[int, str | None, Kind], Actor] = {}
        self._peers: list[tuple[events.Site, Kind, int | None]] | None = None
        self._rewrites: list[Rewrite] = []
        self._lanes: Any = None
        self._ids: Int64s | range = range(0)
        self._array: Int64s | None = None
        self._shapes = Shapes()

    # -- what may matter -----------------------------------------------------------------------------------------------

    def _site(self, event: events.MemoryEvent) -> _Site:
        known = self._sites.get(event.site.id)
        if known is not None:
            return known
        site = event.site
        if self._peers is None:
            self._peers = [(peer, kind_of_site(peer), self.places.key(peer.parameter)) for peer in site.peers]
            if not self.alone and (not self._peers or any(_may_acquire(peer, kind) for peer, kind, _ in self._peers)):
                self.sync = SyncLog(self.launch.n_programs)
        key = self.places.key(site.parameter)
        region = self.places.of_argument(site.parameter)
        near = self._near(key)
        kinds = frozenset(kind for kind in Kind if key != -1 and self._matters(kind, near))
        atomics = any(kind not in (Kind.LOAD, Kind.STORE) for kind, _ in near)
        made = _Site(site, region, kinds, self.sync is not None and (not self._peers or atomics), key == -1)
        self._sites[site.id] = made
        return made

    def _near(self, key: int | None) -> set[tuple[Kind, int]]:
        """(kind, bits) of the accesses that the kernel may make to the same allocation."""
        near = ((peer, kind) for peer, kind, other in self._peers or () if key is None or other is None or key == other)
        return {(kind, peer.element_bits) for peer, kind in near}

    def _matters(self, kind: Kind, near: set[tuple[Kind, int]]) -> bool:
        """Whether an access of that kind may meet another program's at all."""
        if self.alone:
            return False
        if kind in (Kind.STORE, Kind.LOCAL) or not self._peers:
            return True
        kinds = {kind for kind, _ in near}
        mixed = len({bits for kind, bits in near if kind.atomic}) > 1
        if kind is Kind.LOOK:
            return bool(kinds & {Kind.STORE, Kind.LOCAL}) or (Kind.ATOMIC in kinds and mixed)
        if kind is Kind.ATOMIC:
            return bool(kinds - {Kind.ATOMIC, Kind.LOOK}) or mixed
        return bool(kinds & {Kind.STORE, Kind.LOCAL, Kind.ATOMIC})

    def _actor(self, site: events.Site, kind: Kind, size: int, form: Form) -> Actor:
        tensor = site.parameter
        if tensor is None:
            tensor = self.places.tensor(form.first())
        key = (site.id, tensor, kind)
        actor = self._actor_of.get(key)
        if actor is None:
            actor = self._actor_of[key] = Actor(len(self.actors), site, tensor, kind, size)
            self.actors.append(actor)
        return actor

    def _programs(self, event: events.MemoryEvent) -> Int64s | range:
        """Linear ids of the batch, remembered: the same batch does many operations."""
        lanes = getattr(event.batch, "lanes", None)
        if lanes is None:
            x, y, _ = self.launch.grid
            ids = event.programs.astype(np.int64)
            lanes = ids[:, 0] + x * (ids[:, 1] + y * ids[:, 2])
        elif lanes is self._lanes:
            return self._ids
        first, count = int(lanes[0]), len(lanes)
        follow = int(lanes[-1]) - first == count - 1 and bool((lanes[1:] - lanes[:-1]).max(initial=1) == 1)
        self._lanes, self._array = lanes, None
        self._ids = range(first, first + count) if follow else lanes
        return self._ids

    def _id_array(self, ids: Int64s | range) -> Int64s:
        if not isinstance(ids, range):
            return ids
        if ids is not self._ids:
            return np.arange(ids.start, ids.stop, dtype=np.int64)
        if self._array is None:
            self._array = np.arange(ids.start, ids.stop, dtype=np.int64)
        return self._array

    def _placed(self, site: _Site, forms: list[Form]) -> list[tuple[Region, Form]]:
        out = []
        for form in forms:
            if site.region is not None:
                parts = [(site.region, part) for part in site.region.shadow.clip(form)]
            else:
                parts = self.places.place(form)
            for region, part in parts:
                region.shadow.fit(part)
                out.append((region, part))
        return out

    # -- events --------------------------------------------------------------------------------------------------------

    def load(self, event: events.Load) -> None:
        """A plain or volatile load."""
        site = self._site(event)
        if site.reads not in site.kinds:
            return
        self.time += 1
        ids = self._programs(event)
        version = 0 if self.sync is None else self.sync.version
        last = site.loads
        if last is not None:
            if event.mask is None and last.goes_on(event.address, ids, version):
                if self.sync is not None:
                    self.sync.touch(self._id_array(ids), self.time)
                return
            self._settle(site, last)
            site.loads = None
        forms = forms_of(event, ids, self._shapes)
        placed = self._placed(site, forms)
        regular = event.mask is None and len(forms) == 1 and type(event.address) is Separable
        if (
            not regular
            or sum(form.rows for _, form in placed) != len(ids)
            or any(p.regular != forms[0].regular for _, p in placed)
        ):
            self._log(site, site.reads, event.element_bytes, placed)
            return
        epochs = None
        if self.sync is not None:
            programs = self._id_array(ids)
            epochs = self.sync.epoch[programs]
            self.sync.touch(programs, self.time)
        site.loads = Repeats(event.address, placed, ids, self.time, version, epochs)

    def _settle(self, site: _Site, last: Repeats) -> None:
        """Logs loads that do not go on."""
        for region, form in last.placed:
            if last.count > 1:
                region.shadow.fit(repeated(form, last.count, last.step))
            epochs = last.epochs
            if epochs is not None and form.ids is not last.ids:
                epochs = _by_id(epochs, self._id_array(last.ids), form.id_array)
            actor = self._actor(site.site, site.reads, form.size, form)
            region.add(actor, last.time, form, epochs, count=last.count, step=last.step)

    def store(self, event: events.Store) -> None:
        """A store that is about to be made."""
        site = self._site(event)
        if site.nowhere:
            return
        self.time += 1
        ids = self._programs(event)
        forms = forms_of(event, ids, self._shapes)
        placed = self._placed(site, forms)
        if not placed:
            return
        by_region: dict[int, tuple[Region, list[Form]]] = {}
        for region, form in placed:
            by_region.setdefault(region.shadow.base, (region, []))[1].append(form)
        apart = lanes_distinct([form for _, form in placed])
        if not apart or any(_varies(event, form) for form in forms):
            whole = forms[0] if len(placed) == 1 and placed[0][1] is forms[0] else None
            for region, _ in by_region.values():
                self._collide(event, self._id_array(ids), whole, region)
        if self.alone:
            return
        for region, parts in by_region.values():
            self._rewrites += region.shadow.store(parts, event.value is not None)
        if self.sync is not None and site.apart:
            self.sync.wipe(self.time)
        self._log(site, Kind.STORE, event.element_bytes, placed)

    def _collide(self, event: events.Store, ids: Int64s, whole: Form | None, region: Region) -> None:
        met = None if whole is None else collide_as_one(event, whole, region.shadow)
        met = met or collide(event, ids, region.shadow)
        if met is None:
            return
        if not self.alone:
            region.shadow.note(met)
        if len(met.faults):
            actor = self._actor(event.site, Kind.STORE, event.element_bytes, Form(int(met.faults[0, 1]), range(1), 1))
            self.faults.setdefault(actor.number, LaneFaults(actor)).add(met.faults)

    def stored(self) -> None:
        """The store has been made."""
        if self._rewrites:
            for rewrite in self._rewrites:
                rewrite.shadow.settle(rewrite)
            self._rewrites.clear()

    def atomic(self, event: events.Atomic) -> None:
        """An atomic access that has been made."""
        site = self._site(event)
        if self.alone or site.nowhere:
            return
        local = event.scope == "cta"
        used = event.result is not None or (self.launch.dry and event.site.attributes.get("used", False))
        acquire = acquires(event.sem, event.scope) and used
        release = releases(event.sem, event.scope) and event.operation != "load"
        if local or event.sem == "relaxed":
            self.weak.setdefault(event.site.id, (event.site, event.sem, event.scope))
        writes, looks = (Kind.LOCAL, Kind.LOCAL_LOOK) if local else (Kind.ATOMIC, Kind.LOOK)
        orders = self.sync is not None and (acquire or release or event.operation == "store")
        logs = writes in site.kinds or looks in site.kinds
        if not orders and not logs:
            return
        self.time += 1
        ids = self._programs(event)
        wrote = _wrote(event)
        if not orders and wrote is None:
            forms = forms_of(event, ids, self._shapes)
            self._log(site, writes, event.element_bytes, self._placed(site, forms))
            return
        scalar = event.mask is None and not event.block
        if scalar:
            programs = self._id_array(ids)
            addresses = event.address.dense().reshape(-1)
            if len(addresses) != len(programs):
                addresses = np.broadcast_to(addresses, programs.shape)
            done = wrote
        else:
            active = event.active()
            addresses = event.addresses()[active]
            programs = self._id_array(ids)[np.nonzero(active)[0]]
            done = None if wrote is None else wrote[active]
        inside = None
        if scalar and site.region is not None:
            inside = int(addresses.min()), int(addresses.max()) + event.element_bytes
            if not site.region.shadow.holds(*inside):
                inside = None
        if inside is None:
            made = self.places.known(site.region, addresses, event.element_bytes)
            if not made.all():
                addresses, programs, done = addresses[made], programs[made], None if done is None else done[made]
        if orders and self.sync is not None:
            self.sync.enter(programs)
        for kind, chosen in ((writes, done), (looks, None if done is None else ~done)):
            if kind not in site.kinds or (kind is looks and done is None):
                continue
            if chosen is None and not scalar:
                forms = forms_of(event, ids, self._shapes)
            else:
                some, who = (addresses, programs) if chosen is None else (addresses[chosen], programs[chosen])
                if not scalar:
                    forms = merge_runs(some, who, event.element_bytes)
                else:
                    forms = [Form(0, who, event.element_bytes, None, some)] if len(who) else []
                    if forms and inside is not None:
                        forms[0].known = inside  # of all of them, which is good enough
            self._log(site, kind, event.element_bytes, self._placed(site, forms), touch=not orders)
        if orders and self.sync is not None and len(programs):
            self.sync.add(
                event.site.id,
                self.time,
                programs,
                addresses,
                acquire=acquire,
                release=release,
                store=event.operation == "store",
                wrote=done,
                retries=looks not in site.kinds,
            )

    def _log(self, site: _Site, kind: Kind, size: int, placed: list[tuple[Region, Form]], touch: bool = True) -> None:
        for region, form in placed:
            actor = self._actor(site.site, kind, size, form)
            epochs = None
            if self.sync is not None:
                programs = form.id_array
                epochs = self.sync.epoch[programs]
                if touch:
                    self.sync.touch(programs, self.time)
            region.add(actor, self.time, form, epochs, apart=site.apart and kind is Kind.STORE)

    def flush(self) -> None:
        """Logs what was put aside."""
        for site in self._sites.values():
            if site.loads is not None:
                self._settle(site, site.loads)
                site.loads = None
        for region in self.places.regions.values():
            region.flush()

    # -- the end -------------------------------------------------------------------------------------------------------

    def findings(self, client: str) -> list[Finding]:
        """Everything that was found."""
        self.flush()
        regions = list(self.places.regions.values())
        sync = self.sync if self.sync is not None and self.sync.acquired else None
        wipes: list[tuple[int, Int64s]] | None = None

        def stores() -> list[tuple[int, Int64s]]:
            nonlocal wipes
            if wipes is None:
                wipes = [wipe for region in regions for wipe in wipes_of(region, sync)] if sync is not None else []
            return wipes

        conflicts = [
            (region.shadow, conflict) for region in regions for conflict in conflicts_of(region, self.actors, sync, stores)
        ]
        return findings_of(self.launch, client, conflicts, list(self.faults.values()), list(self.weak.values()))


def _by_id(values: Any, ids: Int64s, wanted: Int64s) -> Any:
    """Those of `values`, one for each of `ids`, that belong to `wanted`."""
    order = np.argsort(ids, kind="stable")
    return values[order[np.searchsorted(ids[order], wanted)]]


def _may_acquire(site: events.Site, kind: Kind) -> bool:
    if kind not in (Kind.ATOMIC, Kind.LOOK) or ("load" in site.op and "atomic" not in site.op):
        return False
    known = site.attributes
    return bool(known.get("used", True)) and acquires(known.get("sem", "acq_rel"), known.get("scope", "gpu"))


def _varies(event: events.Store, form: Form) -> bool:
    """Whether lanes that share an address are given different values."""
    if not form.repeats:
        return False
    if event.value is None:
        return any(event.block[axis] > 1 for axis in form.repeats)
    shape = np.shape(event.value)
    lead = len(event.block) - len(shape)  # a value may lack leading axes
    return any(axis - lead >= 0 and shape[axis - lead] > 1 for axis in form.repeats)


def _wrote(event: events.Atomic) -> Any:
    """Which lanes wrote, bool ``[P, *block]``; None for all."""
    if event.operation == "load":
        return np.zeros(event.shape, np.bool_)
    if event.operation != "cas" or event.result is None or event.compare is None:
        return None
    old, expected = np.asarray(event.result), np.asarray(event.compare)
    if old.dtype == expected.dtype and old.dtype.kind == "f":
        bits = f"u{old.itemsize}"
        old, expected = np.ascontiguousarray(old).view(bits), np.ascontiguousarray(expected).view(bits)
    return np.broadcast_to(old == expected, event.shape)
