"""What ``envq.env`` means on a driver: declarations are published, reads give the driver's own copies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, Protocol

from redis import RedisError

from envq.code.payload import Blob
from envq.driver.copies import DriverCopies
from envq.driver.publishing import declaration_of, lives_in_main, not_a_variable, pack, report
from envq.environment import is_bound
from envq.errors import DriverReadRefused
from envq.recipes import recipe, stored_recipe
from envq.runtime import Callables, Recipe
from envq.settings import Settings
from envq.store.declarations import Published, Snapshot
from envq.store.generation import turned_back
from envq.store.records import Declaration
from envq.variables import EnvironmentVariable

log = logging.getLogger("envq.env")

DriverMode = Literal["auto", "eager", "lazy", "never"]


class Declarations(Protocol):
    """The store as a driver uses it."""

    def snapshot(self, *, checked: bool = False) -> Snapshot: ...
    def generation(self) -> str: ...
    def get(self, name: str) -> Declaration: ...
    def code(self, declaration: Declaration) -> Blob: ...
    def publish(self, wanted: Declaration, blob: Blob) -> Published: ...
    def remove(self, name: str) -> Declaration: ...


class Deployment(Protocol):
    """Where declarations go."""

    @property
    def settings(self) -> Settings: ...
    @property
    def declarations(self) -> Declarations: ...


class DriverScope:
    """
    Declarations wait here until there is a deployment, then they are published in order.

    One lock guards all of it, also while an initializer runs: a copy is built once, however many threads
    ask for it.

    Attributes:
        mode: what driver="auto" means in this process; "auto" itself: by where the code lives
    """

    def __init__(self, connect: Callable[[], Deployment]) -> None:
        self.mode: DriverMode = "auto"
        self._connect = connect
        self._lock = threading.RLock()
        self._publishing = False
        self._deployment: Deployment | None = None
        self._pending: dict[str, EnvironmentVariable] = {}
        self._declared: dict[str, EnvironmentVariable] = {}  # here, not by others
        self._published: dict[str, Declaration] = {}  # of those, as they stood then
        self._lost: dict[str, Declaration] = {}  # of those, what the store has forgotten
        self._generation = ""
        self._options: dict[str, str] = {}  # the option ``driver`` of every copy
        self._copies = DriverCopies()

    def declare(self, name: str, variable: object) -> None:
        """Publish, or keep until connected; raises InvalidDeclaration, PayloadError, what an eager build raises."""
        if not isinstance(variable, EnvironmentVariable):
            raise not_a_variable(name, variable)
        limits = (self._deployment.settings if self._deployment else Settings.load()).limits
        blob = pack(name, variable, limits)  # also while nothing is connected: a mistake is refused where it is made
        with self._lock:
            if self._deployment is not None:
                self._publish_or_forget(name, variable, blob, self._deployment)
                return
            self._take(name, variable, blob)
            self._pending.pop(name, None)
            self._pending[name] = variable

    def connected(self, deployment: Deployment) -> None:
        """
        Publish what is pending, in order, before anything else happens on this deployment.

        A declaration that raises stays pending with those behind it, so that each use raises again.
        """
        if self._deployment is deployment and not self._pending:
            return
        if not is_bound(self):
            return  # an executor never publishes
        with self._lock:
            if self._deployment is not deployment:
                self._deployment, self._generation = deployment, ""
                self._published.clear()
            if self._publishing:
                return  # an initializer that runs right now reads something that is not known here
            self._publishing = True
            try:
                while self._pending:
                    name, variable = next(iter(self._pending.items()))
                    self._publish(name, variable, pack(name, variable, deployment.settings.limits), deployment)
                    del self._pending[name]
            finally:
                self._publishing = False

    def generation_of(self, deployment: Deployment) -> str:
        """The generation that what was published there is part of; "" where nothing was."""
        return self._generation if self._deployment is deployment else ""

    def publish_again(self, deployment: Deployment) -> None:
        """
        The store has forgotten what this process declared: publish it, in order, as the same versions.

        What others have declared there since stands, as with any declaration.
        """
        with self._lock:
            if self._deployment is not deployment or not turned_back(
                self._generation, deployment.declarations.generation()
            ):
                return  # another thread was faster
            self._generation = ""
            self._have_published_again()
            self.connected(deployment)

    def declared(self) -> dict[str, EnvironmentVariable]:
        """What this process has declared and not removed, whether or not it is published yet."""
        with self._lock:
            return dict(self._declared)

    def take_over(self, variables: Mapping[str, EnvironmentVariable], deployment: Deployment) -> None:
        """Publish what another scope of this process has declared; nothing is built before it is read."""
        with self._lock:
            for name, variable in variables.items():
                blob = pack(name, variable, deployment.settings.limits)
                self._take(name, variable, blob)
                deployment.declarations.publish(declaration_of(name, variable, blob), blob)

    def declare_again(self) -> None:
        """Have everything this process has declared published on the next deployment too, in order."""
        with self._lock:
            self._pending = {**self._declared, **self._pending}

    def read(self, name: str) -> object:
        """The driver's own copy, built now if it is not there."""
        with self._lock:
            if name not in self._copies:
                self._take_foreign(name)
            if self._mode(self._options[name]) == "never":
                raise DriverReadRefused(
                    f'environment variable {name!r} exists on workers only: driver="never" was asked for', name
                )
            return self._copies.read(name)

    def remove(self, name: str) -> None:
        """Everywhere, with teardown; what is only pending is simply dropped."""
        with self._lock:
            try:
                if self._pending.pop(name, None) is None:
                    self._connect().declarations.remove(name)
            finally:
                self._forget(name)  # also where somebody else was faster

    def names(self) -> list[str]:
        """What is declared anywhere; without a server only what is known here."""
        known = set(self._options)
        if self._deployment is not None:
            try:
                known.update(self._deployment.declarations.snapshot().declarations)
            except RedisError:
                log.debug("names of variables cannot be read", exc_info=True)
        return sorted(known)

    def recipes(self, deployment: Deployment) -> dict[str, Recipe]:
        """Everything declared, for jobs that run in this process; what was declared here is its original code."""
        with self._lock:
            declarations = deployment.declarations.snapshot(checked=True).declarations
            return {name: self._recipe_of(declaration, deployment) for name, declaration in declarations.items()}

    def close(self) -> None:
        """Tear the copies down and forget everything."""
        with self._lock:
            self._copies.close()
            self._declared.clear()
            self._options.clear()
            self._pending.clear()
            self._published.clear()
            self._deployment, self._generation = None, ""

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self._lock = threading.RLock()
        self._publishing = False

    def _have_published_again(self, *but: str) -> None:
        log.warning("Redis has lost declarations of environment variables; they are published again")
        lost = {name: each for name, each in self._declared.items() if name not in but}
        self._lost = {name: self._published[name] for name in lost if name in self._published}
        self._pending = {**lost, **self._pending}

    def _publish(self, name: str, variable: EnvironmentVariable, blob: Blob, deployment: Deployment) -> None:
        self._take(name, variable, blob)
        if self._mode(variable.driver, variable) == "eager":
            self._copies.build(name)
        wanted, stood = declaration_of(name, variable, blob), self._lost.pop(name, None)
        if stood is not None and stood.digest == wanted.digest:
            wanted = replace(wanted, version=stood.version, life=stood.life, epoch=stood.epoch, history=stood.history)
        published = deployment.declarations.publish(wanted, blob)
        before, self._generation = self._generation, published.generation
        self._published[name] = published.declaration
        report(published)
        if turned_back(before, published.generation):
            self._have_published_again(name)
            self.connected(deployment)
        if published.declaration.digest != blob.header.digest:
            self._forget(name)  # another version stands, so that is what is read here as well

    def _publish_or_forget(self, name: str, variable: EnvironmentVariable, blob: Blob, deployment: Deployment) -> None:
        before = self._declared.get(name)
        try:
            self._publish(name, variable, blob, deployment)
        except BaseException:
            self._forget(name)  # the next read takes what is published
            if before is not None:
                self._declared[name] = before
            raise

    def _forget(self, name: str) -> None:
        self._declared.pop(name, None)
        self._options.pop(name, None)
        self._published.pop(name, None)
        self._copies.drop(name)

    def _take(self, name: str, variable: EnvironmentVariable, blob: Blob) -> None:
        if self._declared.get(name) is variable:
            return  # kept when it was declared; what its code captured may have changed since, the copy stays
        self._copies.put(recipe(declaration_of(name, variable, blob), lambda: Callables(*variable.callables)))
        self._declared[name] = variable
        self._options[name] = variable.driver

    def _take_foreign(self, name: str) -> None:
        deployment = self._deployment or self._connect()
        declaration = deployment.declarations.get(name)
        self._copies.put(self._recipe_of(declaration, deployment))
        self._options[name] = declaration.driver

    def _recipe_of(self, declaration: Declaration, deployment: Deployment) -> Recipe:
        own = self._declared.get(declaration.name)
        if own is not None:
            return recipe(declaration, lambda: Callables(*own.callables))
        return stored_recipe(declaration, deployment.declarations.code)

    def _mode(self, option: str, variable: EnvironmentVariable | None = None) -> str:
        mode = self.mode if option == "auto" else option
        if mode == "auto" and variable is not None:
            return "eager" if lives_in_main(variable.initializer) else "lazy"
        return mode
