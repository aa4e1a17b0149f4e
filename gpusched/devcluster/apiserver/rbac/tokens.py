"""Tokens of service accounts: signed claims that expire, and die with their account."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.apimachinery.times import rfc3339
from gpusched.devcluster.apiserver.rbac.rules import User, account_user
from gpusched.devcluster.registry.strategy import ServerContext

Obj = dict[str, Any]

GROUP: Final = "authentication.k8s.io"
AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"
_LIFETIME_S: Final = 3600
_LIFETIME_MIN_S: Final = 600
_LIFETIME_MAX_S: Final = 1 << 32
_HEADER: Final = {"alg": "HS256", "typ": "JWT"}


class ServiceAccountTokens:
    """Issues and reads tokens.

    Args:
        core: whose accounts they speak for, and whose clock they expire by.
        secret: key of the signatures (HMAC-SHA-256).
    """

    def __init__(self, core: ServerContext, secret: bytes) -> None:
        self._core = core
        self._secret = secret

    def issue(self, account: Obj, request: Obj) -> Obj:
        """Complete a TokenRequest for an account; raises StatusError 422 or 400."""
        spec = dict(request.get("spec") or {})
        if not spec.get("audiences"):
            spec["audiences"] = [AUDIENCE]
        seconds = spec.setdefault("expirationSeconds", _LIFETIME_S)
        if errors := _lifetime_errors(seconds):
            raise status.invalid("TokenRequest", GROUP, "", errors=errors)
        if ref := spec.setdefault("boundObjectRef", None):
            kind = ref.get("kind") or ""
            raise status.not_implemented(f"a token bound to a {kind or 'an object'}")
        now = int(self._core.clock.now())
        meta = account["metadata"]
        claims = {
            "aud": spec["audiences"],
            "exp": now + seconds,
            "iat": now,
            "iss": AUDIENCE,
            "jti": self._core.new_uid("token"),
            "kubernetes.io": {
                "namespace": meta["namespace"],
                "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
            },
            "nbf": now,
            "sub": account_user(meta["namespace"], meta["name"]).name,
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{GROUP}/v1",
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "creationTimestamp": rfc3339(now),
            },
            "spec": spec,
            "status": {
                "token": self._signed(claims),
                "expirationTimestamp": rfc3339(now + seconds),
            },
        }

    def user(self, token: str, audiences: list[str] | None = None) -> tuple[User, list[str]] | None:
        """Return the account behind a token and the asked audiences that it is meant for.

        None when the token is not of this server, has expired, has another audience, or its account is gone.
        """
        claims = self._claims(token)
        if claims is None or not claims["nbf"] <= self._core.clock.now() < claims["exp"]:
            return None
        shared = [a for a in audiences or [AUDIENCE] if a in claims["aud"]]
        if not shared:
            return None
        bound = claims["kubernetes.io"]
        namespace, account = bound["namespace"], bound["serviceaccount"]
        collection = self._core.store.collection("serviceaccounts")
        stored = collection.get(f"{namespace}/{account['name']}")
        if stored is None or stored.obj["metadata"]["uid"] != account["uid"]:
            return None
        found = account_user(namespace, account["name"], account["uid"])
        extra = (("authentication.kubernetes.io/credential-id", (f"JTI={claims['jti']}",)),)
        return User(found.name, found.groups, found.uid, extra), shared

    def _signed(self, claims: Obj) -> str:
        head = f"{_text(_HEADER)}.{_text(claims)}"
        return f"{head}.{self._signature(head)}"

    def _signature(self, head: str) -> str:
        return _base64(hmac.new(self._secret, head.encode(), hashlib.sha256).digest())

    def _claims(self, token: str) -> Obj | None:
        head, dot, signature = token.rpartition(".")
        if not dot or not signature.isascii() or not head.isascii():
            return None
        if not hmac.compare_digest(self._signature(head), signature):
            return None
        body = head.rpartition(".")[2]
        try:
            claims: Obj = msgspec.json.decode(
                base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            )
        except (binascii.Error, msgspec.DecodeError):
            return None
        return claims


def review_token(read: Callable[[str, list[str]], tuple[User, list[str]] | None], body: Obj) -> Obj:
    """Answer a TokenReview; ``read`` turns a token and audiences into a user."""
    spec = dict(body.get("spec") or {})
    answer: Obj = {
        "kind": "TokenReview",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {},
        "spec": spec,
        "status": {"user": {}},
    }
    if not spec.get("token"):
        why = "token is required for TokenReview in authentication"
        raise status.bad_request(why)
    asked = spec.get("audiences") or [AUDIENCE]
    found = read(spec["token"], asked)
    if found is None:
        answer["status"]["error"] = "[invalid bearer token, unknown]"
        return answer
    user, audiences = found
    answer["status"] = {"authenticated": True, "user": user_info(user), "audiences": audiences}
    return answer


def user_info(user: User) -> Obj:
    """Return a user as the API shows one."""
    info: Obj = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _lifetime_errors(seconds: int) -> list[FieldError]:
    field = "spec.expirationSeconds"
    if seconds < _LIFETIME_MIN_S:
        return [invalid(field, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _LIFETIME_MAX_S:
        return [invalid(field, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _text(value: Obj) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
