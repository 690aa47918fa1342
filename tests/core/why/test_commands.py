"""`mooring why` and `mooring queue` as a person types them."""

import pytest

from mooring.cli import why as command
from mooring.cli.server import ask
from mooring.core.engine.why.names import spelled_out
from mooring.core.engine.why.words import cut, fit, span
from mooring.core.model.decision import Line
from mooring.core.model.exits import Exit, UserError
from mooring.process.terminal.queue import cells, within


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pod/demo-tikv-1", "pod/tidb/demo-tikv-1"),
        ("pod/shop/web-1", "pod/shop/web-1"),
        ("po/demo-tikv-1", "pod/tidb/demo-tikv-1"),
        ("node/n7", "node/n7"),
        ("machine/M007", "machine/M007"),
        ("operator/42", "operator/42"),
        ("op/42", "operator/42"),
        ("store/demo/4", "store/tidb/demo/4"),
        ("store/prod/demo/4", "store/prod/demo/4"),
        ("tc/demo", "cluster/tidb/demo"),
        ("workload/web", "workload/tidb/web"),
        ("deploy/web", "workload/tidb/Deployment/web"),
        ("sts/shop/db", "workload/shop/StatefulSet/db"),
        ("pods/demo-tikv-1", "pod/tidb/demo-tikv-1"),
        ("nodes/n7", "node/n7"),
        ("Deployments/web", "workload/tidb/Deployment/web"),
        ("deployment.apps/web", "workload/tidb/Deployment/web"),
        ("tidbclusters.pingcap.com/demo", "cluster/tidb/demo"),
        ("rack/2", "rack/2"),
        ("demo-tikv-1", "demo-tikv-1"),
    ],
)
def test_subjects_are_understood_as_people_type_them(typed, meant):
    """The namespace is filled in where there is one, and kubectl's short names work."""
    assert spelled_out(typed, "tidb") == meant


def test_without_a_namespace_mooring_finds_the_object():
    """`deploy/web` alone: the server looks in every namespace."""
    assert spelled_out("deploy/web") == "workload/Deployment/web"
    assert spelled_out("pod/x") == "pod/x"


def test_a_namespace_and_a_name_are_understood_as_our_answers_write_them(monkeypatch, capsys):
    """`mooring why tidb/demo-tikv-0`; what is neither that nor a kind is still bad usage."""
    asked = []

    def answers(_, path, **__):
        asked.append(path)
        if "namespace=tidb" not in path:
            raise UserError("nothing is called x", Exit.CHECK_FAILED)
        return {"answer": "demo-tikv-0 is stable", "state": "stable", "as_of": 0.0, "leading": True}

    monkeypatch.setattr(command, "ask", answers)
    command.why("tidb/demo-tikv-0")
    assert capsys.readouterr().out.startswith("demo-tikv-0 is stable")
    with pytest.raises(UserError, match="write KIND/NAME") as raised:
        command.why("ship/x")
    assert raised.value.code == Exit.USAGE
    assert asked == ["/api/v1/why/demo-tikv-0?namespace=tidb", "/api/v1/why/x?namespace=ship"]


@pytest.mark.parametrize("typed", ["", "pod", "pod/", "ship/x", "/x", "pdo/x"])
def test_what_is_no_subject_is_bad_usage(typed):
    """Exit 2, and the message says what would be right."""
    with pytest.raises(UserError, match=r"(write|Use) (KIND|pod)/NAME") as raised:
        spelled_out(typed, "tidb")
    assert raised.value.code == Exit.USAGE


def test_nobody_answers_is_exit_4(unused_tcp_port):
    """Could not look is never the same as looked and found wrong."""
    with pytest.raises(UserError) as raised:
        ask(f"http://127.0.0.1:{unused_tcp_port}", "/api/v1/queue")
    assert raised.value.code == Exit.UNREACHABLE


def test_a_queue_row_says_state_step_target_missing_and_holder():
    """Sketch A's row: word and shape, step k/n with progress, target used/limit, missing, held by, since, deadline."""
    row = {
        "id": "44",
        "op": "44",
        "state": "waiting",
        "source": "balance",
        "what": "region 7",
        "subject": "operator/44",
        "waiting_on": "store/tidb/demo/4 18/20",
        "missing": "6 of 8",
        "by": ["op 41", "op 39"],
        "since": 100.0,
        "deadline": 230.0,
    }
    assert cells(row, 112.0) == (
        "○ waiting",
        "44",
        "balance",
        "region 7",
        "–",
        "store/tidb/demo/4 18/20",
        "6 of 8",
        "op 41, op 39",
        "0:12",
        "1:58 left",
    )


def test_what_ends_it_is_kept_when_line_1_is_short_of_room():
    """110 characters: a long detail gives way, the end of the sentence stays; the kind word goes first."""
    said = fit("demo-tikv-0 waits: ", "the word " * 20, "; ends when PD answers. Nothing for you to do.")
    assert len(said) <= 110
    assert said.endswith("word…; ends when PD answers.")
    assert len(cut("y" * 500)) == 110


@pytest.mark.parametrize("length", range(1, 130))
def test_line_1_is_never_cut_inside_a_word(length):
    """O3: what does not fit is left out by whole words, however long the words are."""
    words = ["demo-tikv-0", "x" * length, "is", "bound", "to", "a", "node", "that", "is", "cordoned"] * 3
    said = fit("web is blocked: ", " ".join(words), "; a person must act.")
    assert len(said) <= 110
    shown = said.removeprefix("web is blocked: ").partition("…")[0].split()
    assert shown == words[: len(shown)]


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0:00"), (47, "0:47"), (725, "12:05"), (12_000, "3 h 20 min"), (1e6, "11 days")]
)
def test_spans_are_said_in_the_unit_that_fits(seconds, said):
    """0:47, 12:05, 3 h 20 min, 11 days."""
    assert span(seconds) == said


def test_lines_keep_their_places_and_several_now_become_one():
    """However many capabilities speak, and in whatever order."""
    from mooring.core.engine.why.words import in_order

    lines = [Line("to change", "a"), Line("now", "b"), Line("new label", "c"), Line("asked", "d"), Line("now", "e")]
    assert [(line.label, line.text) for line in in_order(lines)] == [
        ("asked", "d"),
        ("now", "b · e"),
        ("new label", "c"),
        ("to change", "a"),
    ]


def test_a_namespace_narrows_the_queue():
    """`mooring queue -n tidb`: what is about that namespace, whatever kind of thing it is."""
    rows = [
        {"op": "1", "subject": "operator/1", "about": "tidb/demo-tikv-0"},
        {"op": "2", "subject": "operator/2", "about": "shop/tidb"},
        {"op": "3", "subject": "operator/3", "about": "n7"},
        {"subject": "workload/tidb/Deployment/web", "about": "web"},
        {"subject": "store/tidb/demo/4"},
    ]
    assert within(rows, "") == rows
    assert within(rows, "tidb") == [rows[0], rows[3], rows[4]]
