"""The errors of transfers from and to the Hub, each with a workaround."""

from __future__ import annotations

from dataclasses import dataclass

from litebert.errors import DamagedError, LitebertError, ResourceError

_AROUND = {
    "fetch": "fetch the files elsewhere and give the folder",
    "list": "fetch the files elsewhere and give the folder",
    "push": "upload the folder in a browser, or on a machine that can",
}


@dataclass(frozen=True)
class Failure:
    """Why a transfer failed: a word for the reason, and the message of the Hub or the system."""

    reason: str
    text: str
    action: str
    name: str
    endpoint: str = ""

    @property
    def around(self) -> str:
        """What to do instead."""
        return _AROUND[self.action]


def explained(failure: Failure) -> LitebertError:
    """Return the error for a failure."""
    return _of_connection(failure) or _of_disk(failure) or _of_repository(failure)


def _of_connection(failure: Failure) -> LitebertError | None:
    match failure.reason:
        case "offline":
            return LitebertError(
                "LB-622",
                f"{failure.name} is not complete in the cache, and HF_HUB_OFFLINE is set",
                received=failure.text,
                expected="a model that was fetched before, or permission to fetch it",
                next=f"unset HF_HUB_OFFLINE, or {failure.around}",
            )
        case "unreachable":
            return LitebertError(
                "LB-623",
                f"the Hub cannot be reached to {failure.action} {failure.name}",
                received=failure.text,
                expected=f"an answer from {failure.endpoint}",
                next=f"check connection, proxy and HF_ENDPOINT, or {failure.around}",
            )
        case "stalled":
            return LitebertError(
                "LB-624",
                f"the Hub has stopped answering during: {failure.action} {failure.name}",
                received=failure.text,
                expected="64 KiB or an answer every 30 seconds",
                next=f"run the same command again later, or {failure.around}",
            )
        case "server":
            return LitebertError(
                "LB-625",
                f"the Hub could not {failure.action} {failure.name}",
                received=failure.text,
                expected=f"a Hub in working order at {failure.endpoint}",
                next=f"run the same command again later, or {failure.around}",
            )
    return None


def _of_disk(failure: Failure) -> LitebertError | None:
    match failure.reason:
        case "damaged":
            return DamagedError(
                "LB-626",
                f"{failure.name} arrived damaged, and was deleted",
                received=failure.text,
                expected="files of the size and the hash that the Hub lists",
                next=f"run the same command again, or {failure.around}",
            )
        case "full":
            return ResourceError(
                "LB-627",
                f"the disk is full while fetching {failure.name}",
                received=failure.text,
                expected="room for the model in the cache",
                next="free some space, or set HF_HOME to a folder on another disk",
            )
        case "disk":
            return LitebertError(
                "LB-628",
                f"the cache for {failure.name} cannot be read or written",
                received=failure.text,
                expected="a cache folder that this user may write to",
                next="set HF_HOME to such a folder",
            )
    return None


def _of_repository(failure: Failure) -> LitebertError:
    match failure.reason:
        case "repository":
            return LitebertError(
                "LB-629",
                f"there is no folder {failure.name} here, and no visible model of this name on the Hub",
                received=failure.text,
                expected="OWNER/NAME of a model that is public, or yours after `hf auth login`",
                next=f"check the name, or {failure.around}",
            )
        case "forbidden":
            return LitebertError(
                "LB-630",
                f"the Hub does not let this user {failure.action} {failure.name}",
                received=failure.text,
                expected="a token with the right to do that; for gated models, granted access",
                next=f"hf auth login; or {failure.around}",
            )
        case "revision":
            return LitebertError(
                "LB-631",
                f"{failure.name} has no such revision",
                received=failure.text,
                expected="a branch, a tag or a commit of that repository",
                next="omit the revision for the newest one",
            )
        case "public":
            return LitebertError(
                "LB-632",
                f"{failure.name} exists already and is public: nothing was sent",
                received="--private",
                expected="a new name, or a repository that is private",
                next="choose another name, or make the repository private in its settings",
            )
    return LitebertError(
        "LB-633",
        f"it was not possible to {failure.action} {failure.name}",
        received=failure.text,
        expected="a transfer that huggingface_hub supports",
        next=f"pip install -U huggingface_hub; or {failure.around}",
    )
