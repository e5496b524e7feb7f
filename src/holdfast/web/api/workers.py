"""Workers, as they tell of themselves."""

from holdfast.fleet import read_workers
from holdfast.web.answers import Workers
from holdfast.web.api.asking import Web
from holdfast.web.api.showing import as_json
from holdfast.web.permissions import Permission
from holdfast.web.replies import Json
from holdfast.web.routing import Routes

routes = Routes("workers")


@routes.get("/workers", may=Permission.JOBS_READ, answer=Workers)
def list_workers(web: Web) -> Json:
    """Every worker that is remembered, dead ones too."""
    return Json(as_json({"workers": read_workers(web.app.engine)}))
