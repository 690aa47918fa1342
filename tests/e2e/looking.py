"""`kubectl get … -o json` without kubectl, for looks that are taken again and again."""

from typing import Any, Final
from urllib.parse import urlencode

from mooring.core.model.kinds import RESOURCES
from mooring_lab.control.cluster import Lab

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
    path = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    path += f"/namespaces/{namespace}" if namespace and resource.namespaced else ""
    (name,) = [one for one in named if one] or [""]
    with lab.api() as api:
        return api.ask("GET", "/".join(filter(None, (path, resource.plural, name))) + "?" + urlencode(asked))
