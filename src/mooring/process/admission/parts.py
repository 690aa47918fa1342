"""What the webhook of one replica consists of: who answers, with which certificate, and who registers it."""

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.admission.decide import MixAdmission
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.registry import hooks
from mooring.clients.kube.fence import fenced
from mooring.clients.ports import Clock, KubeApi, Randomness
from mooring.core.engine.engine import Engine
from mooring.process.admission.configurations import WebhookAddress
from mooring.process.admission.gatekeeper import Gatekeeper
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.admission.reviewer import Reviewer
from mooring.process.admission.webhook_reconciler import WebhookReconciler
from mooring.process.lease.elector import Elector
from mooring.process.recorder import KubeRecorder
from mooring.process.settings.config import Config
from mooring.process.shell import Shell


class WebhookParts(msgspec.Struct, frozen=True):
    """`admission/server.py` puts it on the network, the sandbox calls it directly."""

    reviewer: Reviewer
    tls: ReloadingTls
    reconciler: WebhookReconciler


def webhook_parts(
    config: Config,
    engine: Engine,
    api: KubeApi,
    clock: Clock,
    randomness: Randomness,
    *,
    elector: Elector,
    recorder: KubeRecorder,
    shell: Shell,
    evicting: Callable[[], Collection[str]],
    has_evictions: Callable[[], bool],
) -> WebhookParts:
    reviewer = Reviewer(
        MixAdmission(config.policy(MixPolicy), engine.world.index(SlotBook), config.namespace),
        engine.world,
        shell.now,
        randomness,
        recorder,
        Gatekeeper(engine, config.policy(DrainPolicy), shell.tell, shell.now, evicting, recorder),
        leads=elector.may_write,
        ready=lambda: engine.synced,
        sleep=clock.sleep,
    )
    reviewer.on_leaderless = elector.look_now
    shell.in_a_rush = reviewer.rush.is_on
    tls = ReloadingTls(Path(config.webhook_client_ca).read_bytes() if config.webhook_client_ca else b"")
    reconciler = WebhookReconciler(
        fenced(api, elector.may_write),
        clock,
        tls,
        WebhookAddress(config.namespace, config.webhook_url, config.webhook_service),
        leads=elector.may_write,
        serves=hooks(config.on()),
        directory=config.webhook_certificates,
        has_evictions=has_evictions,
    )
    return WebhookParts(reviewer, tls, reconciler)
