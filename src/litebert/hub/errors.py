"""What can go wrong between here and the Hub, each in four lines, with a workaround."""

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
    """How a transfer ended: a word for the kind, and the message of the Hub or the system."""

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
    return _of_the_way(failure) or _of_the_disk(failure) or _of_the_repository(failure)


def _of_the_way(failure: Failure) -> LitebertError | None:
    match failure.reason:
        case "offline":
            return LitebertError(
                "LB-622",
                f"{failure.name} is not whole in the cache, and HF_HUB_OFFLINE is set",
                received=failure.text,
                expected="a model that was fetched before, or leave to fetch it",
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


def _of_the_disk(failure: Failure) -> LitebertError | None:
    match failure.reason:
        case "damaged":
            return DamagedError(
                "LB-626",
                f"{failure.name} did not arrive whole, and was thrown away",
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


def _of_the_repository(failure: Failure) -> LitebertError:
    match failure.reason:
        case "repository":
            return LitebertError(
                "LB-629",
                f"there is no folder {failure.name} here, and no such model on the Hub to be seen",
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
                next="leave the revision out to take the newest",
            )
        case "public":
            return LitebertError(
                "LB-632",
                f"{failure.name} is there already, and it is public: nothing was sent",
                received="--private",
                expected="a new name, or a repository that is private",
                next="choose another name, or make the repository private in its settings",
            )
    return LitebertError(
        "LB-633",
        f"it was not possible to {failure.action} {failure.name}",
        received=failure.text,
        expected="a transfer as huggingface_hub does it",
        next=f"pip install -U huggingface_hub; or {failure.around}",
    )
