"""`kubectl get … -o json` without kubectl, for looks that are taken again and again: a program that starts, and reads what
the server serves, costs twenty times what it asks."""

import contextlib
import functools
import http.client
import json
import ssl
from typing import Any, Final
from urllib.parse import urlencode

from mooring.core.model.kinds import RESOURCES
from mooring.lab.cluster import Lab
from mooring.lab.controlplane import Layout
from mooring.lab.errors import LabError

RESOURCE: Final = {resource.plural: resource for resource in RESOURCES.values()}
SELECTORS: Final = {"-l": "labelSelector", "--field-selector": "fieldSelector"}


def get(lab: Lab, what: str, *words: str) -> Any:
    """In kubectl's words: `get(lab, "pods", "-n", "shop", "-l", "app=web")`, `get(lab, "node", "n1")`, "tc/demo"."""
    named, asked, namespace = list(what.partition("/")[2:]), {}, ""
    rest = iter(words)
    for word in rest:
        if word == "-n":
            namespace = next(rest)
        elif word in SELECTORS:
            asked[SELECTORS[word]] = next(rest)
        else:
            named.append(word)
    kind = what.partition("/")[0]
    resource = RESOURCE["tidbclusters" if kind == "tc" else kind if kind in RESOURCE else f"{kind}s"]
    path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    path += f"/namespaces/{namespace}" if namespace and resource.namespaced else ""
    (name,) = [one for one in named if one] or [""]
    return json.loads(_answer(lab, "/".join(filter(None, (path, resource.plural, name))) + "?" + urlencode(asked)))


def _answer(lab: Lab, path: str) -> bytes:
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", lab.state.ports.apiserver, timeout=60, context=_trust(lab.layout))
    ) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"GET {path}: {error!r}") from error
    if answer.status != http.HTTPStatus.OK:
        raise LabError(f"GET {path}: {answer.status} {said.decode()}")
    return said


@functools.lru_cache(maxsize=4)
def _trust(at: Layout) -> ssl.SSLContext:
    """The administrator's; a lab lies in a directory of its own."""
    trust = ssl.create_default_context(cafile=str(at.pki / "ca.crt"))
    trust.load_cert_chain(at.pki / "admin.crt", at.pki / "admin.key")
    return trust
