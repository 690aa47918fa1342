"""Settings that change while running: what is right is taken over, what is wrong changes nothing."""

import pytest

from mooring.process.serve import AddressTakenError
from mooring.process.settings.config import Config, resolve
from mooring.process.settings.reload import Reloader


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mooring.yml"
    path.write_text("features: {handoff: true}\n")
    return path


@pytest.fixture
def taken():
    return []


@pytest.fixture
def reloader(file, taken):
    async def apply(config: Config):
        taken.append(config)
        return []

    def settings():
        return resolve({}, {}, str(file))

    return Reloader(settings().config, settings, apply)


async def test_a_feature_switched_in_the_file_is_taken_over_once(reloader, file, taken):
    """Features are switchable while running; the same file twice changes nothing."""
    await reloader.look()
    assert taken == []
    file.write_text("features: {handoff: true, mix: true}\n")
    await reloader.look()
    await reloader.look()
    assert [sorted(config.on()) for config in taken] == [["handoff", "mix"]]


async def test_a_file_that_has_become_wrong_changes_nothing(reloader, file, taken):
    """Bad input loses nothing: the running settings stay until the file is right again."""
    file.write_text("features: {nonsense: true}\n")
    await reloader.look()
    assert taken == []
    file.write_text("features: {}\n")
    await reloader.look()
    assert [config.on() for config in taken] == [frozenset()]


@pytest.mark.parametrize(
    "text", ["queue: {MaxScheduleCost: -5}\n", "queue: {Nonsense: 1}\n", "queue: {OperatorStepCost: 7}\n"]
)
async def test_queue_settings_that_cannot_be_change_nothing(reloader, file, taken, text):
    """T8: changeable while running; a slip in the file is said and does not end the process."""
    file.write_text(text)
    await reloader.look()
    assert taken == []


@pytest.mark.parametrize("error", [OSError("address already in use"), AddressTakenError("--listen-extender …: taken")])
async def test_settings_that_cannot_be_taken_over_are_tried_again(file, error):
    """An address in use, say: the log says so, the process goes on, and the next look tries once more."""
    tries = []

    async def apply(config: Config):
        tries.append(sorted(config.on()))
        if len(tries) == 1:
            raise error
        return []

    def settings():
        return resolve({}, {}, str(file))

    reloader = Reloader(settings().config, settings, apply)
    file.write_text("features: {mix: true}\n")
    for _ in range(3):
        await reloader.look()
    assert tries == [["mix"], ["mix"]]
