#!/usr/bin/env python3
"""Verifies an export of a Sallyport audit ledger, and recomputes its decisions.

Written from docs/ledger.md alone, apart from the service: section names below are anchors of that page.
Python 3.9 or newer, nothing but its standard library. Reads line by line; what it keeps is the state of
principals, resources, bindings and configurations, and the calls that are under way.
"""

import argparse
import base64
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import unicodedata
import zipfile
import zlib
from calendar import monthrange
from collections import Counter, deque
from datetime import datetime, timedelta, timezone
from decimal import Decimal

GENESIS = "0" * 64
LARGEST = 2**53 - 1
LONGEST_LINE = 1 << 20  # bytes, with the newline; what no row reaches (#leaf)
DEEPEST = 16  # levels of a detail (#leaf)
KEPT_REVISIONS = 16  # of a principal, for summaries that stand behind later ones (#rule)
KEPT_CONFIGURATIONS = 256  # (#state)
KEPT_SESSIONS = 10_000  # then those that are over are forgotten (#state)
KEPT_GRANTS = 10_000
KEPT_CALLS = 100_000  # that are open at one time (#pairs)
NAMED_ROWS = 20

TEXT, MAYBE = "text", "text or null"
MAYBE_TEXT = (str, type(None))
COLUMNS = {  # #row
    "stream": TEXT, "recorded_at": TEXT, "request_id": MAYBE, "principal_id": MAYBE, "principal_type": MAYBE,
    "action": TEXT, "status": TEXT, "tool": MAYBE, "model": MAYBE, "provider": MAYBE, "cert_thumbprint": MAYBE,
    "dpop_jkt": MAYBE, "config_digest": TEXT, "version": TEXT, "prev_hash": TEXT, "row_hash": TEXT,
}  # fmt: skip
LEAF = set(COLUMNS) - {"row_hash"} | {"seq", "detail", "v"}
BESIDE = {"result", "principal_name", "subject_name"}  # #export
OUTCOMES = {"success", "error", "truncated", "unknown"}


class Bad(Exception):
    """The line is no row, or not the row that belongs here. `row`: what it says all the same, or None."""

    def __init__(self, message, row=None):
        super().__init__(message)
        self.row = row


class Unreadable(Exception):
    """The file is no export."""


# ---- What is printed: names and texts in it are strangers', and a terminal obeys what it prints ----------


HIDES = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
IGNORABLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"  # and variation selectors


def visible(text):
    """The same text with everything that hides or controls written as \\u{1b}."""
    return re.sub(r"[^ -~]", lambda found: escape(found[0]), text)


def escape(character):
    code = ord(character)
    selects = 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE0FFF
    hides = unicodedata.category(character) in HIDES or character in IGNORABLE or selects
    return f"\\u{{{code:x}}}" if hides else character


def say(text, file=None):
    """Prints a line."""
    (file or sys.stdout).write(visible(text) + "\n")


# ---- Lines: #export, #leaf ------------------------------------------------------------------------------


def ordered(pairs):
    """Members in the order of RFC 8785, by UTF-16 code units. Of two of one name the last is kept."""
    return dict(sorted(pairs, key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass")))


def whole_number(text):
    if len(text) > 17 or abs(int(text)) > LARGEST:
        raise Bad("has a number that is out of range")
    return int(text)


def no_number(text):
    raise Bad(f"has {text[:20]}, which is no integer")


READ = json.JSONDecoder(
    object_pairs_hook=ordered, parse_int=whole_number, parse_float=no_number, parse_constant=no_number
)


def canonical(value):
    """RFC 8785 of what READ gave: its members stand in order, its numbers are integers."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def parse(line):
    """The row of a line, without its newline. Raises Bad."""
    row = None
    try:
        row = READ.decode(line.decode("utf-8"))
        bytes_of_row = canonical(row)
    except Bad as error:
        raise Bad(str(error), plain(line)) from error
    except RecursionError as error:  # brackets a thousand deep
        raise Bad("is nested too deep", plain(without_detail(line))) from error
    except ValueError as error:  # broken UTF-8, a lone surrogate
        raise Bad("cannot be read", row) from error
    if not isinstance(row, dict):
        raise Bad("is no object")
    if bytes_of_row != line:
        raise Bad("is not written in canonical form", row)
    return row


def plain(data):
    """What a text says to any reader of JSON, whose numbers are doubles; None where it is none, or nested too deep to be read."""
    try:
        return LOOSE.decode(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def double(text):
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= LARGEST else number


def no_json(text):
    raise ValueError(f"{text} is no JSON")


LOOSE = json.JSONDecoder(parse_int=double, parse_float=double, parse_constant=no_json)


def without_detail(line):
    """The same line with an empty detail. In front of a detail and behind it no quotation mark of a text is bare."""
    start, end = line.find(b',"detail":'), line.rfind(b',"dpop_jkt":')
    return line[:start] + b',"detail":{}' + line[end:] if 0 < start < end else line


def is_deep(value, left=DEEPEST):
    """Whether a value has more levels than a detail may have (#leaf)."""
    if left < 0:
        return True
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(is_deep(one, left - 1) for one in inside)


def check_columns(row):
    names = set(row) - BESIDE - {"row_hash"}
    if names != LEAF or "row_hash" not in row:
        odd = sorted(names ^ LEAF) or ["row_hash"]
        raise Bad(f"lacks a column or has one more: {odd[0][:40]}")
    for name, kind in COLUMNS.items():
        if not (isinstance(row[name], str) or (kind is MAYBE and row[name] is None)):
            raise Bad(f"has no {kind} in {name}")
    for name in ("principal_name", "subject_name"):
        if not isinstance(row.get(name, ""), str):
            raise Bad(f"has no text in {name}")
    if not isinstance(row["detail"], dict):
        raise Bad("has no object in detail")
    if is_deep(row["detail"]):
        raise Bad("has a detail that is nested too deep")
    if not is_instant(row["recorded_at"]):
        raise Bad("has a time of another form in recorded_at")
    if not is_integer(row["seq"]):
        raise Bad("has no number in seq")


INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def is_instant(text):
    """Whether a text is a time as #row has it, of a day and an hour that there are."""
    try:
        return bool(INSTANT.fullmatch(text) and datetime.fromisoformat(text[:-1]))
    except ValueError:
        return False


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value):
    return is_integer(value) and value > 0


# ---- The chain: #verifying ------------------------------------------------------------------------------


class Chain:
    def __init__(self, from_start=True, heads=()):
        self.from_start = from_start  # else the first row of a stream has its place and its parent on trust
        self.heads = dict(heads)  # stream: (seq, row_hash, v)
        self.begun = set()  # the streams that have a row here
        self.rows = 0
        self.last = "main"
        self.findings = []  # what is wrong beside single rows

    def expected(self, row=None):
        """The place of a row that is bad: its own where it came again, else the one that is missing."""
        stream = row["stream"] if isinstance(row, dict) and isinstance(row.get("stream"), str) else self.last
        said = row.get("seq") if isinstance(row, dict) else None
        if not self.from_start and stream not in self.heads and is_integer(said):
            return stream, said
        wanted = self.heads.get(stream, (0,))[0] + 1
        return stream, min(wanted, said) if is_integer(said) else wanted

    def take(self, row):
        """The five steps of the page, of which `parse` did the first. Gives the leaf. Raises Bad."""
        check_columns(row)
        before = (0, GENESIS, 1) if self.from_start else (row["seq"] - 1, row["prev_hash"], 1)
        seq, parent, version = self.heads.get(row["stream"], before)
        if isinstance(row["v"], bool) or row["v"] not in (1, 2) or row["v"] < version:
            raise Bad("has a version that it cannot have")
        result = row["status"] if row["action"].startswith("mcp_") else None
        if ("result" in row) != (result is not None) or row.get("result") != result:
            raise Bad("has a result that is not its status")
        leaf = {name: value for name, value in row.items() if name in LEAF}
        leaf = canonical(leaf)
        if hashlib.sha256(leaf).hexdigest() != row["row_hash"]:
            raise Bad("was changed: its hash is another one")
        if row["seq"] != seq + 1:
            raise Bad("is missing" if row["seq"] > seq + 1 else "is there twice")
        if row["prev_hash"] != parent:
            raise Bad("does not follow the row before it")
        self.heads[row["stream"]] = (row["seq"], row["row_hash"], row["v"])
        self.last = row["stream"]
        self.begun.add(self.last)
        self.rows += 1
        if row["seq"] == 1 and not begins(row):
            self.findings.append(f"stream {row['stream']} does not begin with service.started")
        return leaf


def begins(row):
    """Whether a stream may have it as its first row. An operator may act before any service has served."""
    return row["v"] == 1 or row["action"] == "service.started" or row["principal_type"] == "operator"


# ---- State: #replay -------------------------------------------------------------------------------------


class Contradiction(Exception):
    """A row does not follow from the rows before it."""


class NotRecomputable(Exception):
    """What the row was judged by is in no row; says why."""


def need(holds, message):
    if not holds:
        raise Contradiction(message)


def strings(value):
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def pairs(value, second=(str,)):
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], second)
        for pair in value
    )


def is_check(value):
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("digest", 0), MAYBE_TEXT)
        and isinstance(value.get("shadow", False), bool)
    )


def pins(value):
    """Whether these are pairs of a thumbprint or key and the end of its time, which may be null."""
    return pairs(value, MAYBE_TEXT) and all(until is None or is_instant(until) for _, until in value)


APPROVED = ("subject", "tool", "pin", "call_digest", "expires_at")


def instant_ms(text):
    whole = datetime.fromisoformat(text[:-1]).replace(tzinfo=timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (whole.days * 86_400 + whole.seconds) * 1_000 + whole.microseconds // 1_000


def is_approver(value):
    return value in ("operator", "person")


def is_rule(said):
    own = said.get("tool_approvals", {})
    every = isinstance(own, dict) and all(one is None or is_approver(one) for one in own.values())
    return every and ("approval" not in said or is_approver(said["approval"]))


SAID = ("revision", "capabilities", "is_active", "thumbprints", "dpop_jkts", "spiffe_id")


class Principal:
    def __init__(self, said):
        self.said = {name: said[name] for name in SAID if name in said}
        self.revision = said["revision"]
        self.capabilities = said["capabilities"]
        self.active = said["is_active"]
        self.thumbprints = said["thumbprints"]
        self.keys = said["dpop_jkts"]
        self.spiffe_id = said.get("spiffe_id")


class Resource:
    def __init__(self, said, tools):
        self.revision = said["revision"]
        self.name = said["name"]
        self.required = said["required_capability"]
        self.own = dict(said["tool_capabilities"])
        self.enabled = said["enabled"]
        self.rule = {name: said[name] for name in ("approval", "tool_approvals") if name in said}  # who approves calls: #approvals
        self.proof, self.own_proof = said.get("min_proof", "certificate"), dict(said.get("tool_min_proof", {}))
        self.tools = tools  # name: what it is, the approved digest and the one that waits, each None where there is none

    def state(self):
        return (self.name, self.required, self.own, self.enabled, self.rule, self.proof, self.own_proof)

    def approver(self, tool):
        own = self.rule.get("tool_approvals", {})
        return own[tool] if tool in own else self.rule.get("approval")

    def approved(self, tool):
        """The digest of a tool that may be called; None where it waits."""
        what, digest, _ = self.tools.get(tool, (None, None, None))
        return digest if what == "approved" else None

    def lists(self, tool):
        return self.tools.get(tool, ("gone",))[0] != "gone"


ODD = "says another state than the rows before it"


class Vouching:
    """The CAs that vouch for a principal that is known by its SPIFFE id; None where no row has said them."""

    def __init__(self, said, what):
        none = "spiffe_id" not in said and what != "snapshot"
        self.attached, self.own, self.before = (set(), [], []) if none else (None, None, None)

    def attach(self, digest, vouches):
        if self.attached is not None:
            (self.attached.add if vouches else self.attached.discard)(digest)

    def replace(self, own, before):
        good = isinstance(before, list) and all(
            isinstance(one, list) and len(one) == 2 and strings(one[0]) and isinstance(one[1], str) for one in before
        )
        self.own, self.before = sorted(own), before if good else None

    def enroll(self, what, said):
        if what == "enrolled_spiffe":
            self.attached = set(said["trusted_cas"]) if strings(said.get("trusted_cas")) else None
            self.own = self.before = None
            if strings(said.get("trust_bundle")):
                self.replace(said["trust_bundle"], said.get("previous_bundles", []))
        elif what in ("created", "enrolled_byoca", "erased"):
            self.attached, self.own, self.before = set(), [], []

    def anchors(self, now):
        """The digests that may let an SVID in, and whether these are all."""
        graced = [digest for digests, until in self.before or [] if now < until for digest in digests]
        whole = self.attached is not None and self.before is not None
        return {*(self.attached or ()), *(self.own or ()), *graced}, whole


FIELDS = ("endpoint_url_sha256", "auth_type", "auth_secret_ref", "allowed_domains", "oauth_sha256", "server_sha256", "instructions_sha256")


def fields_in(said):
    """Where the calls of a server go, and what it says of itself, as far as a row says it."""
    said = said["fields"] if isinstance(said.get("fields"), dict) else said
    return {name: list_text(said[name]) for name in FIELDS if name in said}


def list_text(value):
    """A value as a text that can be compared: the order of a list says nothing (#state)."""
    return canonical(by_units(map(text_of_value, value))).decode("utf-8") if isinstance(value, list) else text_of_value(value)


def text_of_value(value):
    if isinstance(value, list):
        return ",".join("" if one is None else text_of_value(one) for one in value)
    return "[object Object]" if isinstance(value, dict) else value if isinstance(value, str) else canonical(value).decode()


def by_units(texts):
    """In the order of UTF-16 code units."""
    return sorted(texts, key=lambda text: text.encode("utf-16-be", "surrogatepass"))


def ways_in(said):
    if strings(said.get("api_key")):
        return [f"API key {' '.join(said['api_key'])}"]
    return [f"identity {said['identity_sha256']}"] if isinstance(said.get("identity_sha256"), str) else None


class State:
    def __init__(self):
        self.principals = {}  # subject: the last revisions, the newest one last
        self.resources = {}
        self.bindings = {}  # binding: (subject, resource_id)
        self.configurations = {}  # the last ones, the newest one last
        self.cas = {}  # the digest of each attached CA: its kind
        self.rotation = None  # the phase of the replacement of the service's own CA, once a row has said it
        self.secret = None  # the digest of the operator secret's hash; False where a row changed it and does not say to what
        self.disabled = False  # whether the operator secret is
        self.signing = None  # the ids of the keys that sign tokens; None where no row has said them
        self.sets = {}  # named sets of capabilities, as texts
        self.sessions, self.unsaid = {}, set()  # the digest of a session's cookie: whose, until; those of nobody
        self.fields, self.ways_in = {}, {}  # where servers are, by their id; keys and identities, by subject
        self.has_said_trust = set()
        self.vouching = {}  # subject: the CAs that vouch for it
        self.anchoring = set()  # streams whose process names the CA that let an SVID in
        self.old = set()  # subjects and resources of rows of version 1: nobody knows their revision
        self.stops = {}  # the scopes of those that have not ended
        self.prices = {}  # the rates that rows have stated, by their names
        self.limits = Limits()
        self.approvals = {}  # calls that wait for an approval, or have one: #approvals
        self.grants = {}  # what people have allowed clients, by the grant's id
        self.accounts = {}  # accounts at MCP servers that have not ended, by id
        self.account_at = {}  # the same by whose they are, and where

    def start(self, row):
        """Takes in what a start of the service says."""
        (self.anchoring.add if row["detail"].get("names_anchors") is True else self.anchoring.discard)(row["stream"])
        keys, known = row["detail"].get("signing_keys"), self.signing
        if row["status"] == "success" and strings(keys):
            self.signing = {*(known or ()), *keys}
            odd = [key for key in keys if known is not None and key not in known]
            need(not odd, f"starts with the signing key {odd[:1]}, which no row made")

    def ways(self, row):
        """Takes in the ways in that are no principal's, and named sets, of rows of both versions."""
        action, said = row["action"], row["detail"]
        if row["status"] != "success":
            return
        if action == "admin.secret_rotated":
            self.secret = said["secret_sha256"] if isinstance(said.get("secret_sha256"), str) else False
            self.sessions = {one: of for one, of in self.sessions.items() if of["who"] is not None}
        elif action in ("admin.secret_disabled", "admin.secret_enabled"):
            self.disabled = action == "admin.secret_disabled"
        elif action == "admin.signing_key_rotated" and self.signing is not None and isinstance(said.get("kid"), str):
            self.signing.add(said["kid"])
        elif action == "capability_set.stored" and isinstance(said.get("set"), str):
            self.sets[said["set"]] = list_text(said["capabilities"]) if "capabilities" in said else "undefined"
        elif action == "capability_set.deleted":
            self.sets.pop(said.get("set"), None)
        elif action == "admin.sign_in":
            self.sign_in(row, said)
        elif action == "admin.signed_out" and isinstance(said.get("session"), str):
            self.sign_out(said["session"])
        elif action == "authority.bound" and isinstance(said.get("secret_sha256"), str):
            before, self.secret = self.secret, said["secret_sha256"]
            need(before in (False, self.secret), "says another operator secret than the rows before it")

    def sign_in(self, row, said):
        for gone in [said.get("replaces"), *(said["ends"] if strings(said.get("ends")) else [])]:
            if isinstance(gone, str):
                self.sign_out(gone)
        digest, until = said.get("session_sha256"), said.get("session_until")
        if isinstance(digest, str) and isinstance(until, str):
            by_secret = said.get("via") in ("secret", "setup_code")
            self.sessions[digest] = {"who": None if by_secret else row["principal_id"], "until": until}
        elif isinstance(said.get("session"), str):
            self.unsaid.add(said["session"])
        if len(self.sessions) > KEPT_SESSIONS:
            now = row["recorded_at"]
            self.sessions = {one: of for one, of in self.sessions.items() if of["until"] >= now}

    def sign_out(self, session):
        self.unsaid.discard(session)
        self.sessions = {one: of for one, of in self.sessions.items() if not one.startswith(session)}

    def cas_of(self, row):
        """Takes in the rows about CAs, of both versions."""
        action, said = row["action"], row["detail"]
        _, _, what = action.partition(".")
        if action == "ca.attached":
            need(strings(said.get("digests")), "does not say which CAs")
            if isinstance(said.get("kind"), str):
                self.cas.update((digest, said["kind"]) for digest in said["digests"])
        elif action in ("ca.trusted", "ca.distrusted"):
            whose = said.get("subjects")
            need(isinstance(said.get("digest"), str) and strings(whose), "does not say which CA vouches for whom")
            for subject in whose:
                need(subject in self.principals, f"is about {subject}, which no row made")
                self.vouching[subject].attach(said["digest"], action == "ca.trusted")
        elif action == "ca.detached" and isinstance(said.get("digest"), str):
            self.cas.pop(said["digest"], None)
            for one in self.vouching.values():
                one.attach(said["digest"], False)
        elif action.startswith("ca.rotation_"):
            self.rotate(what, said)
        elif action == "ca.bundle_replaced":
            subject = said.get("subject")
            need(strings(said.get("digests")) and subject in self.principals, "does not say which CAs vouch for whom")
            self.vouching[subject].replace(said["digests"], said.get("previous_bundles"))

    def learn(self, action, digest, said, now):
        """Takes in a row of a change of version 2. Raises Contradiction; what the row says stands all the same."""
        kind, _, what = action.partition(".")
        if action == "config.loaded":
            self.configuration(digest, said)
        elif action == "authority.trusted_cas":
            subject = said.get("subject")
            need(isinstance(subject, str) and strings(said.get("trusted_cas")), "does not say which CAs vouch for whom")
            need(subject in self.principals, f"is about {subject}, which no row made")
            before, now = self.vouching[subject].attached, set(said["trusted_cas"])
            again = subject in self.has_said_trust
            self.has_said_trust.add(subject)
            self.vouching[subject].attached = now
            need(not again or before == now, f"says other CAs that vouch for {subject} than the rows before it")
        elif action == "authority.bound":
            self.bound(said)
        elif action == "authority.snapshot":
            if "resource_id" in said:
                self.resource(said, what)
            else:
                self.principal(said, what)
        elif kind in ("agent", "user", "workload", "operator"):
            if not what.startswith("candidate_"):  # it is judged beside the real set, and changes nobody's authority
                self.principal(said, what)
        elif kind == "mcp_resource":
            self.resource(said, what)
        elif kind == "mcp_binding":
            self.binding(said, what)
        elif kind == "grant":
            self.grant(said, what, now)
        elif kind == "upstream_account":
            self.account(said, what)

    def configuration(self, digest, said):
        named = said.get("checks")
        need(
            said.get("egress_dpop_mode") in ("off", "optional", "required")
            and isinstance(said.get("no_downgrade"), bool)
            and isinstance(said.get("enforce_tools_call"), bool)
            and isinstance(named, list)
            and all(is_check(check) and isinstance(check.get("shadow"), bool) for check in named)
            and is_door(said),
            "does not say what the configuration is",
        )
        self.configurations.pop(digest, None)
        self.configurations[digest] = said
        if len(self.configurations) > KEPT_CONFIGURATIONS:
            del self.configurations[next(iter(self.configurations))]

    def principal(self, said, what):
        need(
            isinstance(said.get("subject"), str)
            and is_count(said.get("revision"))
            and strings(said.get("capabilities"))
            and isinstance(said.get("is_active"), bool)
            and pins(said.get("thumbprints"))
            and pins(said.get("dpop_jkts"))
            and isinstance(said.get("spiffe_id", ""), str)
            and (what != "snapshot" or pairs(said.get("bindings", []))),
            "does not carry the state of a principal",
        )
        subject, new = said["subject"], Principal(said)
        self.vouching.setdefault(subject, Vouching(said, what)).enroll(what, said)
        if what == "enrolled_byoca" or (what == "created" and "issuer" in said):
            self.ways_in[subject] = ways_in(said)
        elif what in ("created", "enrolled_spiffe", "erased"):
            self.ways_in[subject] = []
        known = self.principals.setdefault(subject, deque(maxlen=KEPT_REVISIONS))
        if what == "snapshot":
            if known:
                same = known[-1].said == new.said
            else:
                same = True
            if not known or not same:
                known.append(new)
            for binding, resource in said.get("bindings", []):
                self.bindings[binding] = (subject, resource)
            return need(same, f"says another state of {subject} than the rows before it")
        before = known[-1].revision if known else 0
        known.append(new)
        if what == "erased":
            self.unbind(lambda of: of[0] == subject)
        follows = new.revision == before + 1 or (not before and subject in self.old)
        need(follows, f"makes revision {new.revision} of {subject} behind {before}")

    def resource(self, said, what):
        own = said.get("tool_capabilities")
        need(
            isinstance(said.get("resource_id"), str)
            and isinstance(said.get("name"), str)
            and is_count(said.get("revision"))
            and isinstance(said.get("required_capability", 0), MAYBE_TEXT)
            and isinstance(own, dict)
            and strings(list(own.values()))
            and isinstance(said.get("enabled"), bool)
            and is_rule(said)
            and has_proofs(said)
            and pairs(said.get("pinned", []))
            and pairs(said.get("quarantined", []))
            and strings(said.get("gone", [])),
            "does not carry the state of a resource",
        )
        name, known = said["resource_id"], self.resources.get(said["resource_id"])
        new = Resource(said, known.tools if known else {})
        before = known.revision if known else 0
        for tool, digest in said.get("pinned", []):
            new.tools[tool] = ("approved", digest, None)
        for tool, pending in said.get("quarantined", []):
            new.tools[tool] = ("quarantined", new.tools.get(tool, (None, None))[1], pending)
        for tool in said.get("gone", []):
            new.tools[tool] = ("gone", *new.tools.get(tool, (None, None, None))[1:])
        self.resources[name] = new
        known_fields = self.fields.setdefault(name, {})
        if what == "created":
            known_fields.clear()
            known_fields.update(instructions_sha256="null")
        if what != "snapshot":
            known_fields.update(fields_in(said))
        if what == "deleted":
            del self.resources[name], self.fields[name]
            self.unbind(lambda of: of[1] == name)
        if what == "snapshot":
            follows = known is None or (new.revision, new.state()) == (before, known.state())
        else:
            follows = new.revision == before + 1 or (known is None and name in self.old)
        need(follows, f"makes revision {new.revision} of {name} behind {before}")

    def grant(self, said, what, now):
        name, client = said.get("grant"), said.get("client")
        need(isinstance(name, str), "does not say which grant it is about")
        if what != "issued":
            known = self.grants.pop(name, None)
            return need(not known or known["subject"] == said.get("subject"), f"ends the grant {name} of somebody else")
        new = {part: said.get(part, 0) for part in ("subject", "scope", "resource", "bound", "jkt", "expires_at")}
        new["client"] = client.get("id_sha256") if isinstance(client, dict) else None
        need(is_grant(new), "does not say what it grants")
        again = name in self.grants
        self.grants[name] = new
        if len(self.grants) > KEPT_GRANTS:
            self.grants = {one: of for one, of in self.grants.items() if of["expires_at"] >= now}
        need(not again, f"issues the grant {name} once more")

    def account(self, said, what):
        name = said.get("account")
        need(isinstance(name, str), "does not say which account it is about")
        if what != "connected":
            known = self.accounts.pop(name, None)
            need(known, f"ends the account {name}, which no row connected")
            if self.account_at.get(account_place(known)) == name:
                del self.account_at[account_place(known)]
            return need(known["subject"] == said.get("subject"), f"ends the account {name} of somebody else")
        new = {"subject": said.get("subject"), "resource": said.get("resource_id"), "issuer": said.get("issuer")}
        need(strings([*new.values()]) and strings(said.get("scopes")), "does not say what it connects")
        again, second = name in self.accounts, account_place(new) in self.account_at
        self.accounts[name], self.account_at[account_place(new)] = new, name
        need(not again, f"connects the account {name} once more")
        need(not second, f"connects a second account of {new['subject']} at {new['resource']}")

    def rotate(self, what, said):
        step = ROTATION.get(f"{what} {said.get('phase')}" if what == "rotation_cancelled" else what)
        ca = said.get("ca")
        need(step and isinstance(ca, dict) and isinstance(ca.get("intermediate_sha256"), str), "does not say which CA it is about")
        before, self.rotation = self.rotation, step[1]
        need(before in (None, step[0]), f"is a step from {step[0]}, behind {before}")

    def binding(self, said, what):
        binding, of = said.get("binding"), (said.get("subject"), said.get("resource_id"))
        need(isinstance(binding, str) and strings(list(of)), "does not say what is bound")
        if what == "created":
            need(of[0] in self.principals, f"binds {of[0]}, which no row made")
            self.bindings[binding] = of
        elif self.bindings.get(binding) == of:
            del self.bindings[binding]

    def bound(self, said):
        """What the tables held that no row had said."""
        subject = said.get("subject")
        if isinstance(said.get("resource_id"), str):
            name = said["resource_id"]
            need(name in self.resources, f"is about {name}, which no row made")
            known, new = self.fields.setdefault(name, {}), fields_in(said)
            fits = all(known.get(field, value) == value for field, value in new.items())
            known.update(new)
            need(fits, ODD)
        elif isinstance(subject, str):
            need(subject in self.principals, f"is about {subject}, which no row made")
            held, known = self.vouching[subject], self.ways_in.get(subject)
            before = (held.own, held.before)
            if strings(said.get("trust_bundle")):
                held.replace(said["trust_bundle"], said.get("previous_bundles", []))
            ways = self.ways_in[subject] = ways_in(said) or known
            need(before[1] is None or before == (held.own, held.before), ODD)
            need(known is None or known == ways, ODD)

    def approve(self, row, said):
        """Takes in a row about the approval of one call: #approvals."""
        what, name, of = row["action"][len("approval.") :], said.get("approval"), said.get("resource")
        need(isinstance(name, str), "does not say which approval it is about")
        known = self.approvals.get(name)
        if what == "requested":
            now = instant_ms(row["recorded_at"])
            self.approvals = {one: of for one, of in self.approvals.items() if instant_ms(of["expires_at"]) + 3_600_000 >= now}
            whole = strings([said.get(one) for one in APPROVED]) and is_instant(said["expires_at"])
            whole = whole and isinstance(of, dict) and isinstance(of.get("id"), str) and is_count(of.get("revision"))
            whole = whole and said.get("approver", "person") == "person"
            need(whole, "does not say which call it is about")
            there = name in self.approvals
            call = {"resource": of["id"], "revision": of["revision"], "status": "open"}
            call |= {"approver": "person"} if "approver" in said else {}
            self.approvals[name] = {**{one: said[one] for one in APPROVED}, **call}
            return need(not there, f"asks for the approval {name}, which there is already")
        need(known is not None and known["status"] == "open", f"is about the approval {name}, which is not open")
        if what != "approved":
            del self.approvals[name]
            return None
        self.approvals[name] = {**known, "status": "approved"}
        need(row["recorded_at"] < known["expires_at"], "approves a call whose time is over")
        own = row["principal_id"] == known["subject"]
        if "approver" in known:
            return need(own and said.get("via") == "oidc", "approves a call that its own person alone may approve")
        return need(not own, "approves a call of the same principal")

    def unbind(self, which):
        self.bindings = {binding: of for binding, of in self.bindings.items() if not which(of)}

    # What the rows so far have left, as the text of a state has it: #state

    def left(self):
        principals = {}
        for subject, known in self.principals.items():
            vouching = self.vouching[subject]
            principals[subject] = {
                "states": [one.said for one in known],
                "bindings": {binding: to for binding, (of, to) in self.bindings.items() if of == subject},
                "trusted_cas": None if vouching.attached is None else by_units(vouching.attached),
                "trust_said": subject in self.has_said_trust,
                "own_cas": None if vouching.own is None else {"digests": vouching.own, "previous": vouching.before},
                "ways_in": self.ways_in.get(subject),
            }
        return {
            "principals": principals,
            "resources": {
                name: {
                    "revision": one.revision, "name": one.name, "enabled": one.enabled, "required_capability": one.required,
                    "tool_capabilities": one.own, "tools": {tool: list(held) for tool, held in one.tools.items()},
                    "fields": self.fields.get(name, {}), **one.rule, **proofs_left(one),
                } for name, one in self.resources.items()
            },
            "configurations": [
                [digest, {name: said[name] for name in MODES} | {"checks": [check_left(check) for check in said["checks"]]} | door_left(said)]
                for digest, said in self.configurations.items()
            ],
            "cas": self.cas, "rotation": self.rotation, "names_anchors": by_units(self.anchoring), "old": by_units(self.old),
            "secret": self.secret, "secret_is_disabled": self.disabled,
            "signing_keys": None if self.signing is None else by_units(self.signing),
            "sessions": self.sessions, "sessions_of_nobody": by_units(self.unsaid), "sets": self.sets,
            **({"prices": self.prices} if self.prices else {}), **self.limits.left(),
            **({"stops": self.stops} if self.stops else {}),
            **({"approvals": self.approvals} if self.approvals else {}),
            **({"grants": self.grants} if self.grants else {}),
            **({"accounts": self.accounts} if self.accounts else {}),
        }  # fmt: skip

    def take(self, left):
        for subject, one in left["principals"].items():
            self.principals[subject] = deque((Principal(said) for said in one["states"]), maxlen=KEPT_REVISIONS)
            self.bindings.update((binding, (subject, to)) for binding, to in one["bindings"].items())
            vouching = self.vouching[subject] = Vouching({}, "")
            vouching.attached = None if one["trusted_cas"] is None else set(one["trusted_cas"])
            own = one["own_cas"] or {"digests": None, "previous": None}
            vouching.own, vouching.before = own["digests"], own["previous"]
            if one["trust_said"]:
                self.has_said_trust.add(subject)
            if one["ways_in"] is not None:
                self.ways_in[subject] = one["ways_in"]
        for name, one in left["resources"].items():
            self.resources[name] = Resource(one, {tool: tuple(held) for tool, held in one["tools"].items()})
            self.fields[name] = dict(one["fields"])
        self.configurations = dict(left["configurations"])
        self.cas, self.rotation, self.anchoring = left["cas"], left["rotation"], set(left["names_anchors"])
        self.old, self.secret, self.disabled = set(left["old"]), left["secret"], left["secret_is_disabled"]
        self.signing = None if left["signing_keys"] is None else set(left["signing_keys"])
        self.sessions, self.unsaid, self.sets = left["sessions"], set(left["sessions_of_nobody"]), left["sets"]
        self.prices, self.grants = dict(left.get("prices", {})), dict(left.get("grants", {}))
        self.limits.take(left)
        self.stops = dict(left.get("stops", {}))
        self.approvals = dict(left.get("approvals", {}))
        self.accounts = dict(left.get("accounts", {}))
        self.account_at = {account_place(one): name for name, one in self.accounts.items()}


def is_scope(scope):
    if isinstance(scope, str):
        return scope in ("all", "llm", "mcp")
    if not isinstance(scope, dict) or len(scope) != 1:
        return False
    name, value = next(iter(scope.items()))
    kinds = ("agents", "users", "workloads")
    return isinstance(value, str) and (name in ("principal", "resource") or (name == "kind" and value in kinds))


MODES = ("egress_dpop_mode", "no_downgrade", "enforce_tools_call")


def check_left(check):
    options = check.get("options")
    return {"name": check["name"], "digest": check["digest"], "shadow": check["shadow"], "options": options if isinstance(options, str) else None}


# People who call without a certificate: the proofs, the weakest first.
PROOFS = ("none", "key", "certificate")


def has_proofs(said):
    own = said.get("tool_min_proof", {})
    return said.get("min_proof", "certificate") in PROOFS and isinstance(own, dict) and all(proof in PROOFS for proof in own.values())


def proofs_left(one):
    return ({} if one.proof == "certificate" else {"min_proof": one.proof}) | ({"tool_min_proof": one.own_proof} if one.own_proof else {})


def is_door(said):
    return "people" not in said or (isinstance(said["people"], dict) and said["people"].get("llm") in ("off", "key", "none"))


def door_left(said):
    llm = said.get("people", {}).get("llm", "off")
    return {} if llm == "off" else {"people": {"llm": llm}}


def is_grant(one):
    bound, key = one["bound"], one["jkt"]
    return (
        strings([one["subject"], one["client"], one["resource"], one["expires_at"]])
        and is_instant(one["expires_at"])
        and (one["scope"] is None or strings(one["scope"]))
        and ((bound == "none" and key is None) or (bound == "key" and isinstance(key, str)))
    )


def account_place(one):
    return one["subject"], one["resource"]


# The steps of a CA's replacement: the phase that each begins in, and the one that it makes.
ROTATION = {
    "rotation_prepared": ("none", "prepared"),
    "rotation_issued": ("prepared", "issuing"),
    "rotation_finished": ("issuing", "none"),
    "rotation_cancelled prepared": ("prepared", "none"),
    "rotation_cancelled issuing": ("issuing", "prepared"),
}


# ---- The rule: #rule ------------------------------------------------------------------------------------

FIXED = {
    "egress_llm_chat": "llm.chat",
    "mcp_tools_list": "mcp.tools.list",
    "mcp_prompts_list": "mcp.prompts.get",
    "mcp_prompts_get": "mcp.prompts.get",
    "mcp_resources_list": "mcp.resources.read",
    "mcp_resources_templates_list": "mcp.resources.read",
    "mcp_resources_read": "mcp.resources.read",
    "mcp_resources_subscribe": "mcp.resources.read",
    "mcp_resources_unsubscribe": "mcp.resources.read",
}
EITHER = (["mcp.prompts.get"], ["mcp.resources.read"])
TOOLS_CALL = "mcp.tools.call"
REASONS = {
    "proof_required", "mcp_tool_unknown", "mcp_not_bound", "capability_missing", "mcp_tool_quarantined", "stopped",
    "approval_required", "proof_too_weak",
}  # fmt: skip
MCP = set(FIXED) - {"egress_llm_chat"} | {
    "mcp_tools_call", "mcp_completion_complete", "mcp_logging_setLevel", "mcp_response"
}  # fmt: skip
CAPABILITY_OF_METHOD = set(FIXED) | {"mcp_completion_complete"}
LISTS = {"mcp_tools_list", "mcp_prompts_list", "mcp_resources_list", "mcp_resources_templates_list"}


def honoured(held, now):
    """Those of [value, until] whose time is not over. Both times are in one form, so they compare as texts."""
    return [value for value, until in held if until is None or now < until]


class Judge:
    """One decision row, by the state that stands when it comes."""

    def __init__(self, row, state):
        self.row, self.state, self.detail = row, state, row["detail"]
        self.denied = row["status"] == "denied"
        reason = self.detail.get("reason")
        self.reason = reason if self.denied and isinstance(reason, str) else None
        self.authority = self.detail.get("authority")
        self.action, self.now = row["action"], row["recorded_at"]

    def judge(self):
        """Returns where the row follows. Raises Contradiction or NotRecomputable."""
        summarised = "summarised" in self.detail
        self.can_be()
        if summarised and not (isinstance(self.authority, dict) and "revision" in self.authority):
            raise NotRecomputable("summaries that name no revision")
        self.well_formed()
        self.by_account()
        self.configuration = self.state.configurations.get(self.row["config_digest"])
        need(self.configuration is not None, "names a configuration that no row describes")
        self.same_mode()
        need(self.row["principal_id"] is None or "revision" in self.authority, "names a principal without its revision")
        self.asked()
        refused_by = self.detail.get("refused_by")
        if self.denied and any(check["name"] == refused_by for check in self.configuration["checks"]):
            return self.refused_by_check(refused_by)
        if self.denied and self.reason not in REASONS:
            raise NotRecomputable("refused for what no row holds")
        if summarised:
            return self.summary()
        self.holder = self.principal()
        found = self.first_failure()
        if not self.denied:
            need(found is None, f"was allowed, and the rows before it refuse it: {found}")
            return
        if self.reason == "mcp_tool_quarantined" and found is None and self.action == "mcp_tools_call" and self.resource:
            raise NotRecomputable("approved tools that are annotated so that no client may accept them")
        need(found == self.reason, f"was refused for {self.reason}, and the rows before it say: {found or 'allow it'}")

    def is_refused_by_limit(self):
        """Whether a limit had no room for it. A summary names no meter."""
        return self.denied and self.reason == "limit_reached" and "summarised" not in self.detail

    def well_formed(self):
        said = self.authority
        need(
            isinstance(said, dict)
            and strings(said.get("demanded"))
            and ("revision" not in said or is_count(said["revision"]))
            and ("scope" not in said or strings(said["scope"]))
            and isinstance(said.get("token", True), bool)
            and isinstance(said.get("anchor", ""), str)
            and (said.keys().isdisjoint(("grant", "bound")) or (isinstance(said.get("grant"), str) and said.get("bound") in PROOFS[:2]))
            and isinstance(said.get("mode"), dict)
            and isinstance(said.get("checks", []), list)
            and all(is_check(check) for check in said.get("checks", [])),
            "does not name what it was judged by",
        )
        reached = said.get("resource")
        if "resource" in said:
            need(self.action.startswith("mcp_"), "is no MCP call, and names a resource")
            need(
                isinstance(reached, dict) and isinstance(reached.get("id"), str) and is_count(reached.get("revision")),
                "names a resource that is none",
            )
        named = [name in said for name in ("approval", "call_digest")]
        whole = strings([said.get("approval", ""), said.get("call_digest", "")]) and isinstance(said.get("continued", True), bool)
        need(whole and (all(named) or not (any(named) or "continued" in said)), "does not name what it was judged by")
        for name in ("binding", "pin"):
            need(name not in said or (reached and isinstance(said[name], str)), f"names a {name} that is none")

    def can_be(self):
        """What no decision row can be, whatever it rests on."""
        if "summarised" in self.detail:
            need(self.denied and counted(self.detail) is not None, "is a summary that cannot be")
        if not self.denied:
            need("reason" not in self.detail, "was allowed, and has a reason of a refusal")
            need(self.row["request_id"] is not None, "was allowed, and names no request")

    def by_account(self):
        """An allowed call names an account of its principal at its resource, connected earlier, that has not ended."""
        if self.denied or "account" not in self.detail:
            return
        name = self.detail["account"]
        known = self.state.accounts.get(name) if isinstance(name, str) else None
        need(known, "is made with an account that no row connected, or that has ended")
        reached = self.authority.get("resource") or {}
        own = known["subject"] == self.row["principal_id"] and known["resource"] == reached.get("id")
        need(own, f"is made with the account of {known['subject']} at {known['resource']}")

    def principal(self):
        subject, revision = self.row["principal_id"], self.authority.get("revision")
        known = self.state.principals.get(subject)
        need(known, f"rests on {subject}, of which no row speaks")
        last = known[-1].revision
        need(last == revision, f"rests on revision {revision} of {subject}, the last is {last}")
        return known[-1]

    def same_mode(self):
        named, said = self.authority["mode"], self.configuration
        # To Python 1 is true; in JSON it is not.
        same = named.get("egress_dpop_mode") == said["egress_dpop_mode"] and named.get("no_downgrade") is said["no_downgrade"]
        need(same, "names a mode that is not that of its configuration")

    def first_failure(self):
        """The reason of the first question that fails, in the order of the page, or None."""
        for ask in (self.question_1, self.question_2, self.question_3):
            if (found := ask()) is not None:
                return found
        questions = [self.grade, self.question_6, self.question_7, self.question_8, self.question_9, self.question_10]
        if self.reaches():
            first, second = self.question_4, self.question_5
            questions = [second, first, *questions] if self.narrow() else [first, second, *questions]
        return next(filter(None, (ask() for ask in questions)), None)

    def narrow(self):
        """Whether the binding is asked before the resource."""
        return self.door() or self.action == "mcp_response"

    def question_1(self):
        return None if self.holder.active else "principal_deactivated"

    def question_2(self):
        shown = self.row["cert_thumbprint"]
        if "grant" in self.authority:
            return self.granted(shown)
        if shown in honoured(self.holder.thumbprints, self.now):
            return None
        listed = any(shown == value for value, _ in self.holder.thumbprints)
        known = self.holder.spiffe_id and shown and not listed
        return None if known and self.may_vouch() else "certificate_not_pinned"

    def grant(self):
        return self.state.grants.get(self.authority["grant"])

    def granted(self, shown):
        """Question 2 of a call without a certificate."""
        need(shown is None, "names a certificate and a grant")
        grant = self.grant()
        if grant is None or grant["subject"] != self.row["principal_id"] or grant["expires_at"] <= self.now:
            return "token_invalid"
        need(self.authority["bound"] == grant["bound"], f"is of the grade {self.authority['bound']}, and its grant of {grant['bound']}")
        scope = self.authority.get("scope")
        within = grant["scope"] is None or (scope is not None and set(scope) <= set(grant["scope"]))
        need(within, "has a scope that its grant does not cover")
        return None

    def grade(self):
        """Of a call without a certificate: whether it shows the least proof that its target takes."""
        if "bound" not in self.authority or (least := self.least_proof()) is None:
            return None
        return None if PROOFS.index(self.authority["bound"]) >= PROOFS.index(least) else "proof_too_weak"

    def least_proof(self):
        """None where nothing is reached: what is listed is left out piece by piece."""
        if self.action == "egress_llm_chat":
            llm = self.configuration.get("people", {}).get("llm", "off")
            return "certificate" if llm == "off" else llm
        if self.action == "mcp_tools_list":
            return None
        if self.resource is None:
            return "certificate" if self.action == "mcp_tools_call" and self.row["tool"] == "http.get" else None
        return self.resource.own_proof.get(self.tool(), self.resource.proof)

    def may_vouch(self):
        """Whether the CA that let an SVID in is one of those that vouch for its principal."""
        anchor = self.authority.get("anchor")
        named = anchor is not None or self.row["stream"] not in self.state.anchoring
        need(named, "does not name the CA that its certificate chains to")
        said, whole = self.state.vouching[self.row["principal_id"]].anchors(self.now)
        self.in_one_point = None if anchor in said else "in one point: SVIDs that chain to a CA which no row says"
        return anchor is None or anchor in said or not whole

    def question_3(self):
        if "grant" in self.authority:
            grant, shown = self.grant(), self.row["dpop_jkt"]
            if grant is None or grant["bound"] == "none":
                return None
            return None if shown == grant["jkt"] else "proof_required" if shown is None else "proof_invalid"
        mode = self.configuration["egress_dpop_mode"]
        if mode == "off":
            return None
        keys, shown = honoured(self.holder.keys, self.now), self.row["dpop_jkt"]
        token = self.authority.get("token") is True
        bound = self.configuration["no_downgrade"] and len(keys) > 0
        if shown is None:
            return "proof_required" if mode == "required" or bound or token else None
        if token and not bound:
            return None
        if not keys:
            return "proof_required" if mode == "required" else None
        return None if shown in keys else "proof_invalid"

    def door(self):
        """Whether `path` is the door of one resource."""
        parts = str(self.detail.get("path", "")).split("/")
        return len(parts) == 4 and parts[:2] == ["", "v1"] and "mcp" in parts[2:] and all(parts[2:])

    def reaches(self):
        """Whether the call reaches a resource; sets it."""
        named = self.authority.get("resource")
        if self.action == "egress_llm_chat":
            return False
        if named is None:
            if self.reason in ("mcp_not_bound", "mcp_tool_unknown"):
                raise NotRecomputable("no resource is named, for there was none")
            if self.action in LISTS or (self.action == "mcp_tools_call" and self.row["tool"] == "http.get"):
                return False
            need(self.denied, "does not name the resource that it reached")
            if self.action not in CAPABILITY_OF_METHOD:
                raise NotRecomputable("no resource is named")
            return False
        self.resource = self.state.resources.get(named["id"])
        need(self.resource, f"names the resource {named['id']}, which no row made")
        said, last = named["revision"], self.resource.revision
        need(said == last, f"rests on revision {said} of {named['id']}, the last is {last}")
        if self.action == "mcp_tools_call" or (self.action == "mcp_response" and self.row["tool"] is not None):
            need(self.tool() is not None, f"is about {self.row['tool']}, which is none of {self.resource.name}")
        return True

    resource = in_one_point = None

    def tool(self):
        """The tool's own name, or None where the row's tool is not one of the resource."""
        name, prefix = self.row["tool"] or "", f"{self.resource.name}." if self.resource else ""
        mine = self.action in ("mcp_tools_call", "mcp_response") and prefix and name.startswith(prefix)
        return name[len(prefix) :] if mine else None

    def question_4(self):
        if self.resource is None or not self.resource.enabled:
            return "mcp_tool_unknown"
        listed = self.action != "mcp_tools_call" or self.resource.lists(self.tool())
        return None if listed else "mcp_tool_unknown"

    def question_5(self):
        of = (self.row["principal_id"], self.authority["resource"].get("id"))
        bindings, named = self.state.bindings, self.authority.get("binding")
        right = isinstance(named, str) and bindings.get(named) == of
        if self.resource is None or not (right or of in bindings.values()):
            return "mcp_not_bound"
        need(right or (named is None and self.denied), "names a binding that is not there")
        return "mcp_not_bound" if not self.resource.enabled and self.narrow() else None

    def demands(self):
        """Every list that may stand in `demanded`."""
        enforced = self.configuration["enforce_tools_call"]
        if self.action in FIXED:
            return [[FIXED[self.action]]]
        if self.action == "mcp_completion_complete":
            return list(EITHER)
        if self.action == "mcp_logging_setLevel":
            return [[self.resource.required] if self.resource.required is not None else []]
        if self.action not in MCP:
            raise NotRecomputable("an action that has no rule")
        if self.row["tool"] is None:
            raise NotRecomputable("answers that name no tool")
        if self.resource is None:
            own = "http.get"
        else:
            own = self.resource.own.get(self.tool(), self.resource.required)
        bare = [own] if own is not None else []
        full = bare if TOOLS_CALL in bare else [*bare, TOOLS_CALL]
        if self.action == "mcp_response" and enforced:
            return [bare, full]
        return [full if enforced else bare]

    def question_6(self):
        demanded, held = self.authority["demanded"], self.held(self.holder)
        wanted = self.demands()
        if not held and self.reason == "capability_missing" and [] in wanted:
            wanted.append([TOOLS_CALL])
        need(demanded in wanted, f"says that {demanded} was demanded, which is {wanted[0]}")
        return self.missing(demanded, held)

    def held(self, holder):
        scope = self.authority.get("scope")
        if scope is None:
            return set(holder.capabilities)
        return set(holder.capabilities) & set(scope)

    def missing(self, demanded, held):
        lacking = [capability for capability in demanded if capability not in held]
        if not lacking and not held:
            lacking = [TOOLS_CALL]
        if not lacking:
            return None
        if self.reason == "capability_missing":
            # A summary says it only where all that it stands for have the same.
            otherwise = lacking[0] if "summarised" in self.detail else None
            said = self.detail.get("required_capability", otherwise)
            need(said == lacking[0], f"lacks {lacking[0]}, and says another one")
        return "capability_missing"

    def question_7(self):
        if self.action != "mcp_tools_call" or self.resource is None:
            return None
        approved = self.resource.approved(self.tool())
        if approved is None:
            return "mcp_tool_quarantined"
        if not self.denied:
            need(self.authority.get("pin") == approved, "names a definition that is not the approved one")
        return None

    def asked(self):
        """The checks that the row names, each one of its configuration, in order. Raises Contradiction."""
        named = self.authority.get("checks", [])
        rest = iter(self.configuration["checks"])
        for check in named:
            there = any(same_check(check, other) for other in rest)
            need(there, f"names the check {check['name']}, which was not asked so")
            need(check.get("verdict") in ("pass", "refuse", "failed"), "names a verdict that is none")
        return [check for check in named if not check.get("shadow")]

    def question_8(self):
        asked = self.asked()
        if self.denied:
            return None
        must = [check["name"] for check in self.configuration["checks"] if not check.get("shadow")]
        need([check["name"] for check in asked] == must, "does not name every check that must be asked")
        need(all(check["verdict"] == "pass" for check in asked), "was allowed, and a check did not pass")
        return None

    def question_9(self):
        """The stops that have not ended."""
        stops = self.state.stops
        if self.reason == "stopped":
            named = self.detail.get("stop")
            there = isinstance(named, str) and named in stops and self.stopped(stops[named])
            need(there, f"names the stop {named}, which is not open or not for this call")
            return "stopped"
        return "stopped" if any(self.stopped(scope) for scope in stops.values()) else None

    def stopped(self, scope):
        if isinstance(scope, str):
            return scope == "all" or self.action.startswith("mcp_") == (scope == "mcp")
        reached = self.authority.get("resource") or {}
        found = {"principal": self.row["principal_id"], "resource": reached.get("id"), "kind": f"{self.row['principal_type']}s"}
        return all(found[name] == value for name, value in scope.items())

    def question_10(self):
        """Whether somebody else has approved exactly this call: #approvals."""
        name, tool = self.authority.get("approval"), self.action == "mcp_tools_call" and self.resource is not None
        if not tool or self.resource.approver(self.tool()) is None:
            need(name is None, "names an approval that it does not need")
            return None
        if name is None:
            return "approval_required"
        need(not self.denied, "was refused, and names an approval")
        known, said = self.state.approvals.get(name), self.authority
        need(known is not None, f"names the approval {name}, which no row asked for")
        call = (self.row["principal_id"], said["resource"]["id"], said["resource"]["revision"], self.row["tool"], said.get("pin"), said["call_digest"])
        of = tuple(known[one] for one in ("subject", "resource", "revision", "tool", "pin", "call_digest"))
        own = "approver" in known
        asked = self.resource.approver(self.tool()) == "person" and self.row["principal_type"] == "user"
        need(asked or not own, f"names the approval {name} of its own person, and an operator must approve it")
        need(call == of, f"names the approval {name}, which is of another call")
        need(known["status"] != "open", f"names the approval {name}, which nobody had given")
        need(self.now < known["expires_at"], f"names the approval {name}, whose time was over")
        goes_on = said.get("continued") is True
        need(goes_on == (known["status"] == "used"), f"names the approval {name}, which was {'not ' if goes_on else ''}used before")
        return None

    def refused_by_check(self, name):
        """Such a row may stand behind a later revision: nothing asked whether its own was still the last."""
        revisions(self.state, self.row["principal_id"], self.authority.get("revision"))
        refused = [check["name"] for check in self.asked() if check["verdict"] != "pass"]
        need(name in refused, f"does not say that {name} refused it")

    def summary(self):
        """One row for many refusals: no certificate, no key, and perhaps behind later revisions."""
        revision = self.authority["revision"]
        known = revisions(self.state, self.row["principal_id"], revision)
        holder = next((one for one in known if one.revision == revision), None)
        if holder is None:
            raise NotRecomputable("summaries of a revision long past")
        if self.reason not in ("capability_missing", "proof_required"):
            raise NotRecomputable("summaries of several causes")
        self.holder = holder
        if self.reason == "proof_required":
            found = self.question_3()
        else:
            demanded = self.authority["demanded"]
            if self.action in FIXED:
                need(demanded == [FIXED[self.action]], f"says that {demanded} was demanded")
            found = self.missing(demanded, self.held(holder))
        need(found == self.reason, f"was refused for {self.reason}, and the rows before it say: {found or 'allow it'}")


def same_check(named, configured):
    same = named["name"] == configured["name"] and named["digest"] == configured["digest"]
    return same and named.get("shadow", False) is configured["shadow"]


def revisions(state, subject, revision):
    """The last revisions of a principal, where the named one is not later than they are."""
    known = state.principals.get(subject)
    need(known, f"rests on {subject}, of which no row speaks")
    need(is_count(revision) and revision <= known[-1].revision, f"rests on revision {revision}, which no row made")
    return known


# ---- The walk: #recomputing, #pairs ---------------------------------------------------------------------


class Walk:
    def __init__(self, due=()):
        self.state = State()
        self.open = {}  # request_id: its stream, seq and version
        self.cut = False  # whether there were more than are kept
        self.sets = {}  # principal: what it held last
        self.heads = {}  # stream: the seq, the hash and the version of its last row
        self.due, self.digests, self.said = set(due), {}, set()  # the leaves whose state a row says; their digests; those said
        self.leaf = 0
        self.archived = {}  # the file of each segment that a row says is archived, and not forgotten: its digest, and the row
        self.recomputed = self.disagree = self.unpaired = self.unfinished = 0
        self.why = Counter()
        self.problems = []

    def see(self, row):
        if self.leaf in self.due and self.leaf not in self.digests:
            self.digests[self.leaf] = hashlib.sha256(self.text()).hexdigest()
        self.leaf += 1
        self.heads[row["stream"]] = [row["seq"], row["row_hash"], row["v"]]
        self.pair(row)
        if gated(row["action"]) and row["status"] in ("allowed", "denied"):
            self.decide(row)
            self.use(row)
        elif gated(row["action"]) and row["status"] in OUTCOMES and row["v"] == 2:
            self.charge(row)
            self.settle(row)
        elif not gated(row["action"]) and not refused_change(row):
            self.hold(row)
            try:
                self.change(row)
            except Contradiction as problem:
                if row["v"] == 2:
                    self.disagree += 1
                    self.name(row["stream"], row["seq"], str(problem))

    def change(self, row):
        """Takes in a row of a change. Rows of version 1 say no state of a principal or a resource."""
        old = row["v"] == 1
        if old:
            named = (row["detail"].get("subject"), row["detail"].get("resource_id"))
            self.state.old.update(name for name in named if isinstance(name, str))
        if row["action"] == "service.started":
            self.state.start(row)
        if row["action"] in ("ledger.archived", "ledger.forgotten") and isinstance(row["detail"].get("file"), str):
            self.archived.pop(row["detail"]["file"], None)
            if row["action"] == "ledger.archived":
                self.archived[row["detail"]["file"]] = (row["detail"].get("sha256"), f"{row['stream']}:{row['seq']}")
        if row["action"] == "ledger.state" and not old:
            return self.compare(row["detail"])
        if row["action"] == "price.stated" and not old:
            return self.price(row["detail"])
        if row["action"] in LIMIT_CHANGES and not old:
            return self.state.limits.change(row)
        if row["action"] in ("stop.begun", "stop.ended") and not old:
            return self.stop(row["action"], row["detail"])
        self.state.ways(row)
        self.state.cas_of(row)
        if not old:
            self.state.learn(row["action"], row["config_digest"], row["detail"], row["recorded_at"])
            if row["action"].startswith("approval."):
                self.state.approve(row, row["detail"])

    def stop(self, action, said):
        name, scope, stops = said.get("stop"), said.get("scope"), self.state.stops
        need(isinstance(name, str) and is_scope(scope), "does not say what it stops")
        if action == "stop.ended":
            return need(stops.pop(name, None) is not None, f"ends {name}, which was not open")
        need(name not in stops, f"begins {name} a second time")
        stops[name] = scope

    def price(self, said):
        price, rates = said.get("price"), said.get("rates")
        need(isinstance(price, str) and is_rates(rates), "states no rates")
        need(hashlib.sha256(canonical(rates)).hexdigest()[:16] == price, "states other rates than it names")
        self.state.prices[price] = rates

    def charge(self, row):
        try:
            check_cost(row["detail"], self.state.prices)
        except Contradiction as problem:
            self.disagree += 1
            self.name(row["stream"], row["seq"], str(problem))

    def settle(self, row):
        try:
            self.state.limits.ended(row)
        except NotRecomputable as why:
            self.why[str(why)] += 1
        except Contradiction as problem:
            self.disagree += 1
            self.name(row["stream"], row["seq"], str(problem))

    def limit(self, row):
        """Counts a decision in its meters. Returns why that is not decided, or None. Raises Contradiction."""
        try:
            self.state.limits.decided(row, self.capabilities(row))
        except NotRecomputable as why:
            return f"in one point: {why}"

    def refused_by_limit(self, row):
        """Raises Contradiction or NotRecomputable."""
        authority = row["detail"]["authority"]
        need(row["detail"].get("limit") is not None, MIS_FORMED)
        revisions(self.state, row["principal_id"], authority.get("revision"))
        self.state.limits.refused(row, self.capabilities(row))

    def capabilities(self, row):
        """What the principal held in the revision that a decision names; None where that is not kept."""
        authority = row["detail"].get("authority")
        revision = authority.get("revision") if isinstance(authority, dict) else None
        known = self.state.principals.get(row["principal_id"], ())
        return next((one.capabilities for one in reversed(known) if one.revision == revision), None)

    def compare(self, said):
        leaf, digest = said.get("leaf"), said.get("sha256")
        need(is_integer(leaf) and leaf <= self.leaf and isinstance(digest, str), "does not say the state of which rows it is")
        if leaf not in self.digests:
            self.why["a state of rows that were not walked"] += 1
        else:
            need(self.digests[leaf] == digest, f"says another state of the rows before leaf {leaf} than these make")
            self.said.add(leaf)

    def hold(self, row):
        """Keeps what a row says that a principal holds (#evidence)."""
        detail = row["detail"]
        subject, revision, held = detail.get("subject"), detail.get("revision"), detail.get("capabilities")
        if row["action"] not in FREQUENT and isinstance(subject, str) and is_integer(revision) and isinstance(held, list):
            self.sets[subject] = {
                "principal": subject, "revision": revision, "is_active": detail.get("is_active") is not False,
                "capabilities": held, "row": f"{row['stream']}:{row['seq']}",
            }  # fmt: skip

    def held(self):
        return [held for _, held in ordered(self.sets.items()).items()]

    def text(self):
        """The text of the state that the rows so far have left (#state)."""
        left = self.state.left()
        left.update({
            "v": 1, "leaf": self.leaf, "streams": self.heads, "open": {one: list(of) for one, of in self.open.items()},
            "open_is_cut": self.cut, "principal_sets": self.held(),
        })  # fmt: skip
        return canonical(READ.decode(json.dumps(left)))

    def take(self, data):
        """Begins with a state. Returns whether it is one, written as it must be."""
        try:
            left = READ.decode(data.decode("utf-8"))
            if not is_state(left):
                return False
            self.state.take(left)
        except (Bad, ValueError, RecursionError):
            return False
        self.leaf, self.cut = left["leaf"], left["open_is_cut"]
        self.heads, self.open = dict(left["streams"]), {one: tuple(of) for one, of in left["open"].items()}
        self.sets = {held["principal"]: held for held in left["principal_sets"]}
        self.digests[self.leaf] = hashlib.sha256(data).hexdigest()
        return self.text() == data

    def decide(self, row):
        stands = counted(row["detail"]) or 1
        try:
            if row["v"] == 1:
                raise NotRecomputable("of version 1")
            try:
                self.judge(row, stands)
            except Contradiction as problem:
                self.disagree += stands
                self.name(row["stream"], row["seq"], str(problem))
            self.recomputed += stands
        except NotRecomputable as why:
            self.why[str(why)] += stands

    def judge(self, row, stands):
        judge, limits, wrong = Judge(row, self.state), None, None
        try:
            # Counted whatever else the row is.
            limits = self.limit(row) if row["status"] == "allowed" else None
        except Contradiction as problem:
            wrong = problem
        try:
            judge.judge()
        except NotRecomputable:
            if wrong:
                raise wrong from None
            if not judge.is_refused_by_limit():
                raise
            return self.refused_by_limit(row)
        if wrong:
            raise wrong
        for point in filter(None, [judge.in_one_point or limits]):
            self.why[point] += stands

    def use(self, row):
        """An approval lets one call pass, and what goes on with that call."""
        said = row["detail"].get("authority")
        name = said.get("approval") if isinstance(said, dict) else None
        if row["action"] == "mcp_tools_call" and row["status"] == "allowed" and isinstance(name, str) and name in self.state.approvals:
            self.state.approvals[name] = {**self.state.approvals[name], "status": "used"}

    def pair(self, row):
        stream, request = row["stream"], row["request_id"]
        if row["action"] == "service.started":
            for left, (_, seq, version) in [one for one in self.open.items() if one[1][0] == stream]:
                del self.open[left]
                if version == 2:
                    self.unfinished += 1
                    self.name(stream, seq, "was allowed, and has no outcome")
            self.state.limits.keep(self.open)
        elif not gated(row["action"]):
            return
        elif row["status"] == "allowed" and request is not None:
            self.begin(row, request)
        elif row["status"] in OUTCOMES:
            if not self.ends(stream, request, row["status"]) and row["v"] == 2 and not self.cut:
                self.unpaired += 1
                self.name(stream, row["seq"], "is an outcome without a decision before it")

    def begin(self, row, request):
        """An upgrade may have interrupted calls of version 1."""
        if request in self.open:
            if row["v"] == 2 and self.open[request][2] == 2:
                self.unpaired += 1
                self.name(row["stream"], row["seq"], "is a second decision on its request")
        elif len(self.open) >= KEPT_CALLS:
            self.cut = True
        else:
            self.open[request] = (row["stream"], row["seq"], row["v"])

    def ends(self, stream, request, status):
        """Whether an outcome is that of an open decision; ends it. Another stream may only say `unknown`."""
        of = self.open.get(request)
        if of is None or (of[0] != stream and status != "unknown"):
            return False
        del self.open[request]
        return True

    def name(self, stream, seq, problem):
        if len(self.problems) < NAMED_ROWS:
            self.problems.append({"stream": stream, "seq": seq, "problem": problem})

    def wrong(self):
        return self.disagree + self.unfinished + self.unpaired

    def under_way(self):
        return len(self.open)

    def line(self):
        why = ", ".join(f"{count} {why}" for why, count in sorted(self.why.items()))
        return (
            f"decisions recomputed {self.recomputed}, disagree {self.disagree}, "
            f"not recomputable {sum(self.why.values())}{f' (why: {why})' if why else ''}, "
            f"allowed without outcome {self.unfinished}, outcomes without a decision {self.unpaired}"
        )

    def found(self):
        return {
            "recomputed": self.recomputed, "disagree": self.disagree, "not_recomputable": dict(self.why),
            "allowed_without_outcome": self.unfinished, "outcomes_without_decision": self.unpaired,
            "open": self.under_way(), "states": len(self.said), "problems": self.problems,
        }  # fmt: skip


def list_of(is_one):
    return lambda value: isinstance(value, list) and all(map(is_one, value))


def map_of(is_one):
    return lambda value: isinstance(value, dict) and all(map(is_one, value.values()))


def row_of(*kinds):
    return lambda value: isinstance(value, list) and len(value) == len(kinds) and all(is_one(of) for is_one, of in zip(kinds, value))


def members(**kinds):
    """An object that has these, whatever else it has: what is odd in it is found by writing it again."""
    return lambda value: isinstance(value, dict) and all(name in value and is_one(value[name]) for name, is_one in kinds.items())


def maybe(is_one):
    return lambda value: value is None or is_one(value)


def is_text(value):
    return isinstance(value, str)


def is_flag(value):
    return isinstance(value, bool)


def is_place(value):
    return is_integer(value) and value >= 0


def is_version(value):
    return is_integer(value) and value in (1, 2)


IS_PRINCIPAL = members(
    states=lambda value: bool(value) and list_of(members(
        revision=is_count, capabilities=strings, is_active=is_flag, thumbprints=pins, dpop_jkts=pins))(value),
    bindings=map_of(is_text), trusted_cas=maybe(strings), trust_said=is_flag, ways_in=maybe(strings),
    own_cas=maybe(members(digests=strings, previous=maybe(list_of(row_of(strings, is_text))))),
)  # fmt: skip
IS_RESOURCE = members(
    revision=is_count, name=is_text, enabled=is_flag, required_capability=maybe(is_text), tool_capabilities=map_of(is_text),
    tools=map_of(row_of(("approved", "quarantined", "gone").__contains__, maybe(is_text), maybe(is_text))), fields=map_of(is_text),
)  # fmt: skip
IS_CONFIGURATION = members(
    egress_dpop_mode=("off", "optional", "required").__contains__, no_downgrade=is_flag, enforce_tools_call=is_flag,
    checks=list_of(lambda check: is_check(check) and is_flag(check.get("shadow")) and "digest" in check),
)  # fmt: skip
IS_WAITING_CALL = members(
    **{one: is_text for one in APPROVED}, resource=is_text, revision=is_count, status=("open", "approved", "used").__contains__
)  # fmt: skip


def is_approval(value):
    return IS_WAITING_CALL(value) and value.get("approver", "person") == "person"


HAS_ALL = members(
    v=lambda value: value == 1 and is_integer(value), leaf=is_place, streams=map_of(row_of(is_place, is_text, is_version)),
    open=map_of(row_of(is_text, is_place, is_version)), open_is_cut=is_flag, principals=map_of(IS_PRINCIPAL),
    principal_sets=list_of(lambda one: is_held_set(one)),
    resources=map_of(lambda one: IS_RESOURCE(one) and is_rule(one) and has_proofs(one)),
    configurations=list_of(row_of(is_text, lambda one: IS_CONFIGURATION(one) and is_door(one))), cas=map_of(is_text), rotation=maybe(is_text),
    names_anchors=strings, old=strings, secret=lambda value: value is False or maybe(is_text)(value), secret_is_disabled=is_flag,
    signing_keys=maybe(strings), sessions=map_of(members(who=maybe(is_text), until=is_text)), sessions_of_nobody=strings, sets=map_of(is_text),
)  # fmt: skip


def is_state(value):
    return (
        HAS_ALL(value)
        and map_of(is_rates)(value.get("prices", {}))
        and map_of(IS_LIMIT)(value.get("limits", {}))
        and map_of(list_of(IS_HELD))(value.get("holds", {}))
        and map_of(is_approval)(value.get("approvals", {}))
        and map_of(is_whole_grant)(value.get("grants", {}))
        and map_of(members(subject=is_text, resource=is_text, issuer=is_text))(value.get("accounts", {}))
    )


def is_whole_grant(value):
    return isinstance(value, dict) and value.keys() >= GRANT and is_grant(value)


GRANT = {"subject", "client", "scope", "resource", "bound", "jkt", "expires_at"}


def states_said(file):
    """The leaves of which the rows of a file say the state."""
    found = (SAYS_STATE.search(line) for line in lines(file) if line is not None and b'"ledger.state"' in line)
    return {int(one[1]) for one in found if one}


SAYS_STATE = re.compile(rb'"action":"ledger\.state".{0,200}"detail":\{"leaf":([0-9]{1,16}),')


def counted(detail):
    """How many refusals a summary stands for; None where it does not say."""
    summarised = detail.get("summarised")
    count = summarised.get("count") if isinstance(summarised, dict) else None
    return count if is_count(count) else None


def gated(action):
    """Whether rows of this action are decisions and outcomes of calls."""
    return action == "egress_llm_chat" or (action.startswith("mcp_") and "." not in action)


def refused_change(row):
    """An operator's change that was refused has the change's action, and makes no state."""
    detail = row["detail"]
    return row["status"] == "denied" and isinstance(detail.get("reason"), str) and "revision" not in detail


# ---- Costs: #recomputing-costs --------------------------------------------------------------------------

OTHER_RATE = {
    "cached": "input", "cache_write": "input", "cache_write_5m": "cache_write", "cache_write_30m": "cache_write",
    "cache_write_1h": "cache_write", "cache_write_12h": "cache_write", "input_audio": "input", "input_image": "input",
    "output_audio": "output", "output_image": "output",
}  # fmt: skip
LIFETIMES = ("cache_write_12h", "cache_write_1h", "cache_write_30m", "cache_write_5m")
FACTORS = ("service_tier", "speed", "geo")
PRICED = ("stated", "estimated", "partly", "reserved", "free", "unpriced")
MILLION = 10**6
MOST = 2**53 - 1


def is_rates(value):
    numbers = map_of(is_place)
    kinds = {"input", "output", "input_over", *OTHER_RATE}
    tokens = lambda of: numbers(of) and set(of) <= kinds
    return (
        isinstance(value, dict) and set(value) <= {"tokens", "above", "uses", "call", "factors"}
        and ("tokens" not in value or tokens(value["tokens"]))
        and list_of(lambda tier: tokens(tier) and "input_over" in tier)(value.get("above", []))
        and numbers(value.get("uses", {})) and is_place(value.get("call", 0)) and map_of(numbers)(value.get("factors", {}))
    )  # fmt: skip


def rate_in(rates, kind):
    while kind not in rates:
        if kind not in OTHER_RATE:
            return 0
        kind = OTHER_RATE[kind]
    return rates[kind]


def count_in(said, name):
    return said[name] if is_place(said.get(name)) else 0


def counts_by_rate(said, estimated):
    """All that was read, and the tokens of each kind of rate."""
    read, written = count_in(said, "input"), count_in(said, "output")
    rest = max(0, count_in(said, "total") - read - written)
    if "input" in said:
        written += rest
    else:
        read += rest
    read, written = read + estimated["input"], written + estimated["output"]
    parts, left = {}, read
    lifetimes = [(name, count_in(said, name)) for name in LIFETIMES]
    writes = max(0, count_in(said, "cache_write") - sum(count for _, count in lifetimes))
    asked = [("cached", count_in(said, "cache_read")), *lifetimes, ("cache_write", writes)]
    for kind, count in asked + [(kind, count_in(said, kind)) for kind in ("input_audio", "input_image")]:
        parts[kind] = min(count, left)
        left -= parts[kind]
    parts["input"], left = left, written
    for kind in ("output_audio", "output_image"):
        parts[kind] = min(count_in(said, kind), left)
        left -= parts[kind]
    parts["output"] = left
    return read, parts


def cost_of(rates, said, estimated=None):
    """In pico-USD times 10 to the 18."""
    uses = dict(said["server_tools"]) if isinstance(said.get("server_tools"), dict) else {}
    fixed = rates.get("call", 0) + count_in(said, "searches") * rates.get("uses", {}).get("web_search", 0)
    fixed += sum(count_in(uses, tool) * rate for tool, rate in rates.get("uses", {}).items())
    if "tokens" not in rates:
        return fixed * MILLION**3
    tokens = said["tokens"] if isinstance(said.get("tokens"), dict) else {}
    read, parts = counts_by_rate(tokens, estimated or {"input": 0, "output": 0})
    tier = ([rates["tokens"]] + [one for one in rates.get("above", []) if read > one["input_over"]])[-1]
    total = sum(count * rate_in(tier, kind) for kind, count in parts.items())
    for kind in FACTORS:
        word = said.get(kind)
        total *= rates.get("factors", {}).get(kind, {}).get(word, MILLION) if isinstance(word, str) else MILLION
    return total + fixed * MILLION**3


def is_price(value):
    return value is None or (isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) is not None)


is_cost = members(microusd=is_place, price=is_price, priced=PRICED.__contains__)
is_estimate, is_trial = members(input=is_place, output=is_place), members(input=is_place, prices=list_of(is_price))


def check_cost(detail, prices):
    if "cost" not in detail:
        return
    said = detail["cost"]
    need(
        is_cost(said) and is_estimate(said.get("estimated", {"input": 0, "output": 0})) and list_of(is_price)(said.get("further", []))
        and is_trial(said.get("tried", {"input": 0, "prices": []})) and isinstance(said.get("unpriced", []), list),
        "says a cost that is not formed as one is",
    )  # fmt: skip
    refused = is_integer(detail.get("upstream_status")) and detail["upstream_status"] >= 300
    free = said["priced"] == "free" and said["price"] is None
    need(not free or "tokens" not in detail or refused, "says that counted tokens were free, and by which rates not")
    known = {"estimated", "tried", "unpriced"} & set(said)
    need(said["priced"] != "stated" or not known, "says a cost that is stated, and is not")
    if said["priced"] == "reserved":
        limits = detail["limits"] if isinstance(detail.get("limits"), list) else []
        charged = [one.get("charged") for one in limits if isinstance(one, dict)]
        died = detail.get("reason") == "crash"
        need(died and said["microusd"] in charged, "says a cost that was held, and no limit was charged it")
        return
    words = {name: detail[name] for name in FACTORS if name in detail}
    others = detail["further"] if isinstance(detail.get("further"), list) else []
    billed = [(said["price"], detail, said.get("estimated"))]
    for at, price in enumerate(said.get("further", [])):
        one = others[at] if at < len(others) and isinstance(others[at], dict) else {}
        billed.append((price, {"tokens": one.get("tokens"), **words}, None))
    tried = said.get("tried", {"input": 0, "prices": []})
    billed += [(price, {}, {"input": tried["input"], "output": 0}) for price in tried["prices"]]
    billed = [one for one in billed if one[0] is not None]
    need(all(price in prices for price, _, _ in billed), "names rates that no row before it states")
    total = sum(cost_of(prices[price], of, estimated) for price, of, estimated in billed)
    made = min(MOST, -(-total // (MILLION * MILLION**3)))
    need(made == said["microusd"], f"says a cost of {said['microusd']}, but its counts and rates make {made}")


# ---- Limits: #recomputing-limits ------------------------------------------------------------------------

PAST_METERS = 16_384  # changes of meters whose state before them is kept
KEPT_STATES = 16  # of a limit
DAY_MS = 86_400_000
NEW_METER = (0, 0, 0, 0)  # n, reserved, spent, tat
LIMIT_CHANGES = {f"limit.{what}" for what in ("created", "changed", "overridden", "removed")}
LIMIT_MEMBERS = {"id", "name", "revision", "for", "each", "measure", "amount", "per", "burst", "strict", "on", "show", "override"}
SCOPE_LISTS = ("principals", "types", "models", "tools")
RATES = {"second": 1_000, "minute": 60_000}
WINDOWS = {"hour": (3_600_000, 0), "day": (DAY_MS, 0), "week": (7 * DAY_MS, 4 * DAY_MS)}
MIS_FORMED = "does not say its limits as they are said"
OF_LONG_AGO = "limits of a window that was over a day before"
UNSAID_SCOPE = "limits for something that the row does not say"
MOVED_ON = "limits whose meter has gone on since"
TOO_MANY = "limits, after more open calls than are followed"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def ms_of(text):
    since = datetime.fromisoformat(text[:-1]).replace(tzinfo=timezone.utc) - EPOCH
    return since.days * DAY_MS + since.seconds * 1_000 + since.microseconds // 1_000


def text_of_ms(at):
    return (EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds")[:-6] + "Z"


def window(per, at):
    """The first ms of a window of the UTC calendar, and that of the next; None where it has no end."""
    if per == "ever":
        return None
    if per == "month":
        now = EPOCH + timedelta(milliseconds=at)
        begins = datetime(now.year, now.month, 1, tzinfo=timezone.utc)
        days = monthrange(now.year, now.month)[1]
        return (begins - EPOCH).days * DAY_MS, ((begins - EPOCH).days + days) * DAY_MS
    length, first = WINDOWS[per]
    begins = (at - first) // length * length + first
    return begins, begins + length


def is_name(value):
    return isinstance(value, str) and value != ""


def is_override(value):
    return value is None or (
        isinstance(value, dict) and set(value) == {"amount", "until", "reason"} and is_place(value["amount"])
        and is_text(value["until"]) and is_instant(value["until"]) and is_text(value["reason"])
    )  # fmt: skip


def is_limit(value):
    """Whether it is the state of a limit, as rows of its changes say it."""
    if not isinstance(value, dict) or not set(value) <= LIMIT_MEMBERS or not LIMIT_MEMBERS - {"per", "burst"} <= set(value):
        return False
    scope, measure, per = value["for"], value["measure"], value.get("per")
    if not isinstance(scope, dict) or not set(scope) <= {"holding", *SCOPE_LISTS} or not is_name(scope.get("holding", "x")):
        return False
    if measure == "concurrent":
        timed = "per" not in value and "burst" not in value
    elif per in RATES:
        timed = measure in ("tokens", "calls") and is_place(value.get("burst", 0))
    else:
        timed = measure in ("cost", "tokens", "calls") and per in ("month", "ever", *WINDOWS) and "burst" not in value
    return (
        timed and is_name(value["id"]) and is_name(value["name"]) and is_count(value["revision"])
        and all(list_of(is_name)(scope.get(name, [])) for name in SCOPE_LISTS)
        and all(is_flag(value[name]) for name in ("each", "strict", "show"))
        and value["on"] in ("refuse", "alert") and is_place(value["amount"]) and is_override(value["override"])
    )  # fmt: skip


def is_reservation(value, more=()):
    numbers = ("revision", "n", "used", "took", *more)
    return (
        isinstance(value, dict) and set(value) - {"each"} == {"id", "span", *numbers} and is_flag(value.get("each", False))
        and is_text(value["id"]) and is_text(value["span"]) and all(is_place(value[name]) for name in numbers)
    )  # fmt: skip


def is_settlement(value):
    return (
        isinstance(value, dict) and set(value) == {"id", "span", "n", "charged"} and is_text(value["id"])
        and is_text(value["span"]) and is_place(value["n"]) and is_place(value["charged"])
    )  # fmt: skip


def limits_in(detail, is_one):
    """The member `limits` of a row. Raises Contradiction."""
    said = detail.get("limits", [])
    need(list_of(is_one)(said) and len({one["id"] for one in said}) == len(said), MIS_FORMED)
    return said


def fits_glob(pattern, name):
    """Linear: each part is looked for once."""
    head, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    at, tail = len(head), rest.pop()
    if not name.startswith(head):
        return False
    for part in rest:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(name) - len(tail) >= at and name.endswith(tail)


def amount_at(limit, now):
    override = limit["override"]
    return override["amount"] if override and ms_of(override["until"]) > ms_of(now) else limit["amount"]


def meter_of(limit, row):
    """The span that a call counts in, for whom, the most there is, and of a steady rate how much drains in which time."""
    now, per = row["recorded_at"], limit.get("per")
    amount, who = amount_at(limit, now), (row["principal_id"] or "") if limit["each"] else ""
    if per is None:
        return "now", who, amount, None
    if per in RATES:
        return "steady", who, limit.get("burst", amount), (amount, RATES[per])
    begins = window(per, ms_of(now))
    return ("ever" if begins is None else text_of_ms(begins[0])), who, amount, None


def level(meter, refill, at):
    _, _, spent, tat = meter
    return max(0, spent - refill[0] * max(0, at - tat))


def used_of(meter, refill, at):
    return meter[1] + meter[2] if refill is None else -(-level(meter, refill, at) // refill[1])


def has_room(meter, took, most, refill, at):
    if refill is None:
        return meter[1] + meter[2] + took <= most
    return level(meter, refill, at) + took * refill[1] <= most * refill[1]


def poured(meter, units, refill, at):
    """A steady meter, after what has drained from it until then, with so many units more."""
    return 0, max(0, level(meter, refill, at) + units * refill[1]), max(meter[3], at)


def used_in_outcome(measure, detail):
    """What an outcome says that its call has used; None where nobody has said."""
    if measure in ("calls", "concurrent"):
        return 1 if measure == "calls" else 0
    status, attempts = detail.get("upstream_status"), detail.get("attempts")
    asked = isinstance(attempts, list) and len(attempts) > 0
    untaken = (is_integer(status) and status >= 400) or ("tokens_unknown" not in detail and not asked)
    unstated = 0 if untaken else None
    if measure == "cost":
        cost = detail.get("cost")
        if not isinstance(cost, dict):
            return unstated
        return cost["microusd"] if is_place(cost.get("microusd")) else None
    tokens = detail.get("tokens")
    if not isinstance(tokens, dict):
        return unstated
    counts_said = [tokens[name] for name in ("input", "output") if is_place(tokens.get(name))]
    return sum(counts_said) if counts_said else None


def charges(measure, detail, took):
    """What an outcome may charge; None where its row does not say what was used."""
    reason = detail.get("reason")
    if reason == "crash":
        return [0 if measure == "concurrent" else took]
    if reason == "detail_unstorable" and measure in ("cost", "tokens"):
        return None
    used = used_in_outcome(measure, detail)
    unused = reason == "audit_unavailable" and detail.get("http_status") == 503
    return [took if used is None else used, *([0] if unused else [])]


class Meter:
    def __init__(self, state=NEW_METER, held=0):
        self.state, self.open, self.past = state, held, {}


class Limit:
    """A limit: its last states, the newest one last, and its meters by span and principal."""

    def __init__(self, state):
        self.states, self.removed, self.forgotten, self.spans = deque([state], maxlen=KEPT_STATES), None, None, {}

    def last(self):
        return self.states[-1]

    def fixed(self):
        return [self.last().get(name) for name in ("for", "each", "measure", "per")]

    def idle(self):
        return not any(meter.open for span in self.spans.values() for meter in span.values())

    def find(self, span, who):
        return self.spans.get(span, {}).get(who)

    def is_forgotten(self, span):
        """Texts of windows are ASCII."""
        return self.forgotten is not None and units(span) <= units(self.forgotten) and span not in self.spans

    def take(self, span, who, now):
        """The meter, or a new one; None where it is of a window that was forgotten."""
        if span not in self.spans:
            if self.is_forgotten(span):
                return None
            self.forget(ms_of(now))
        return self.spans.setdefault(span, {}).setdefault(who, Meter())

    def forget(self, at):
        per = self.last().get("per")
        if per is None or per in RATES or per == "ever":
            return
        for span in list(self.spans):
            over = is_instant(span) and window(per, ms_of(span))[1] + DAY_MS <= at
            if over and not any(meter.open for meter in self.spans[span].values()):
                del self.spans[span]
                if self.forgotten is None or units(span) > units(self.forgotten):
                    self.forgotten = span

    def fit(self, row, capabilities):
        """True, False, or None where the row does not say enough."""
        scope, detail, unsaid = self.last()["for"], row["detail"], False
        routed, is_model = detail.get("routed"), row["action"] == "egress_llm_chat"
        models = [] if not is_model else routed if strings(routed) and all(len(one) < 1_024 for one in map(units, routed)) else None
        tool = row["tool"]
        tools = [tool] if tool is not None and len(units(tool)) < 1_024 else [] if tool is None else None
        names = None if row["principal_type"] == "user" else [row["principal_id"] or ""]
        kind = row["principal_type"] if row["principal_type"] in ("agent", "user", "workload") else "operator"
        for patterns, known in (("principals", names), ("models", models), ("tools", tools), ("types", [kind])):
            if patterns not in scope:
                continue
            if known is None:
                unsaid = True
            elif patterns == "types":
                if kind not in scope["types"]:
                    return False
            elif not any(fits_glob(pattern, name) for pattern in scope[patterns] for name in known):
                return False
        if "holding" in scope:
            if capabilities is None:
                unsaid = True
            elif scope["holding"] not in capabilities:
                return False
        return None if unsaid else True


def units(text):
    """A text as its UTF-16 code units: how long it is, and its order."""
    return memoryview(text.encode("utf-16-be", "surrogatepass")).cast("H").tolist() if not text.isascii() else list(map(ord, text))


class Limits:
    def __init__(self):
        self.limits, self.holds = {}, {}
        self.past, self.cut = deque(), False  # the meters whose state before a change is kept, and its n

    def change(self, row):
        """A row that makes, changes or removes a limit. Raises Contradiction; its content counts all the same."""
        said, what, now = row["detail"].get("limit"), row["action"].partition(".")[2], row["recorded_at"]
        need(is_limit(said), "does not carry the state of a limit")
        for name in [name for name, one in self.limits.items() if one.removed and one.idle() and ms_of(one.removed) + DAY_MS <= ms_of(now)]:
            del self.limits[name]
        name, known = said["id"], self.limits.get(said["id"])
        there = known is not None and known.removed is None
        before = known.last() if known else None
        if what == "removed":
            if known:
                known.removed = now
            need(there, f"changes the limit {name}, which is not there")
            return need(same_json(before, said), f"removes another limit {name} than there is")
        fixed = known.fixed() if known else None
        new = Limit(said)
        if known and same_json(fixed, new.fixed()):
            known.states.append(said)
            known.removed = None
        else:
            self.limits[name] = new
        if what == "created":
            return need(known is None and said["revision"] == 1, f"makes the limit {name}, which is there")
        need(there, f"changes the limit {name}, which is not there")
        need(same_json(fixed, new.fixed()), f"changes what the limit {name} is for")
        need(said["revision"] == before["revision"] + 1, f"makes revision {said['revision']} of the limit {name}, behind {before['revision']}")

    def set(self, meter, n, rest):
        """Gives a meter its next state, and keeps the one before."""
        if len(self.past) == PAST_METERS:
            oldest, number = self.past.popleft()
            oldest.past.pop(number, None)
        meter.past[meter.state[0]] = meter.state
        self.past.append((meter, meter.state[0]))
        meter.state = (n, *rest)

    def decided(self, row, capabilities):
        """An allowed decision. Raises Contradiction or NotRecomputable, once all is counted."""
        named = limits_in(row["detail"], is_reservation)
        faults = [self.reserve(row, one, capabilities) for one in named]
        if named:
            self.hold(row, named)
        if self.cut and (named or self.limits):
            raise NotRecomputable(TOO_MANY)
        ids = {one["id"] for one in named}
        for name, limit in self.limits.items():
            if limit.removed is None and name not in ids:
                fit = limit.fit(row, capabilities)
                if fit:
                    faults.append(Contradiction(f"leaves out the limit {name}, which is for it"))
                elif fit is None:
                    faults.append(NotRecomputable(UNSAID_SCOPE))
        cost = self.held_cost((one["id"], one["took"]) for one in named)
        if not same_json(row["detail"].get("held_microusd", cost), cost):
            faults.append(Contradiction("says another cost than it holds"))
        raise_worst(faults)

    def held_cost(self, held):
        """The most that is held of a limit of cost; None where none is."""
        return max((took for name, took in held if name in self.limits and self.limits[name].last()["measure"] == "cost"), default=None)

    def reserve(self, row, said, capabilities):
        known = self.limits.get(said["id"])
        if known is None or known.removed is not None:
            return Contradiction(f"names the limit {said['id']}, which is not there")
        limit, now = known.last(), row["recorded_at"]
        span, _, most, refill = meter_of(limit, row)
        meter = known.take(said["span"], meter_of(limit, row)[1], now)
        if meter is None:
            return NotRecomputable(OF_LONG_AGO)
        before, at, took = meter.state, ms_of(now), said["took"]
        meter.open += 1
        self.set(meter, said["n"], poured(before, took, refill, at) if refill else (before[1] + took, before[2], before[3]))
        try:
            need(said["revision"] == limit["revision"], f"rests on revision {said['revision']} of the limit {said['id']}")
            same = said.get("each", False) is limit["each"] and said["span"] == span and is_unit(limit, took)
            need(same, f"says the limit {said['id']} otherwise than it is")
            fit = known.fit(row, capabilities)
            need(fit is not False, f"names the limit {said['id']}, which is not for it")
            need(said["n"] == before[0] + 1, f"is change {said['n']} of a meter of the limit {said['id']}, behind {before[0]}")
            used = used_of(before, refill, at)
            need(said["used"] == used, f"says that {said['used']} of the limit {said['id']} are used, but it is {used}")
            room = limit["on"] != "refuse" or has_room(before, took, most, refill, at)
            need(room, f"takes {took} of the limit {said['id']}, of which {used} of {most} are used")
        except Contradiction as problem:
            return problem
        return NotRecomputable(UNSAID_SCOPE) if fit is None else None

    def hold(self, row, named):
        if len(self.holds) >= KEPT_CALLS:
            self.cut = True
            return
        held = self.holds[row["request_id"] or ""] = []
        for one in named:
            known = self.limits.get(one["id"])
            _, who, _, refill = meter_of(known.last(), row) if known else (None, "", None, None)
            held.append([one["id"], one["span"], who, one["took"], refill[0] if refill else None])

    def ended(self, row):
        """An outcome. Raises Contradiction or NotRecomputable, once all is counted."""
        held = self.holds.pop(row["request_id"] or "", [])
        named = limits_in(row["detail"], is_settlement)
        faults = [self.settle(row, one, held) for one in named]
        if self.cut:
            if named:
                raise NotRecomputable(TOO_MANY)
            return
        ids = {one["id"] for one in named}
        faults += [Contradiction(f"does not settle the limit {one[0]}") for one in held if one[0] not in ids]
        cost, died = row["detail"].get("cost"), row["detail"].get("reason") == "crash"
        if died and isinstance(cost, dict) and not same_json(cost.get("microusd"), self.held_cost((one[0], one[3]) for one in held)):
            faults.append(Contradiction("says another cost than its decision held"))
        raise_worst(faults)

    def settle(self, row, said, held):
        of = next((one for one in held if one[:2] == [said["id"], said["span"]]), None)
        if of is None:
            return Contradiction(f"settles the limit {said['id']}, of which its decision holds nothing")
        name, span, who, took, rate = of
        known = self.limits.get(name)
        meter = known.find(span, who) if known else None
        if meter is None:
            return NotRecomputable(OF_LONG_AGO)
        limit, detail, before, charged = known.last(), row["detail"], meter.state, said["charged"]
        per = limit.get("per")
        meter.open = max(0, meter.open - 1)
        if span != "steady":
            rest = max(0, before[1] - took), before[2] + charged, before[3]
        elif rate is not None and per in RATES and detail.get("reason") != "crash":
            rest = poured(before, charged - took, (rate, RATES[per]), ms_of(row["recorded_at"]))
        else:
            rest = before[1:]
        self.set(meter, said["n"], rest)
        if said["n"] != before[0] + 1:
            return Contradiction(f"is change {said['n']} of a meter of the limit {name}, behind {before[0]}")
        due = charges(limit["measure"], detail, took)
        if due is None:
            return NotRecomputable("charges of outcomes that could not be stored")
        return None if charged in due else Contradiction(f"charges {charged} of the limit {name}, but it makes {due[0]}")

    def refused(self, row, capabilities):
        """A decision that was refused because of a limit. Raises Contradiction or NotRecomputable."""
        said = row["detail"].get("limit")
        need(is_reservation(said, ("most",)), MIS_FORMED)
        name, known = said["id"], self.limits.get(said["id"])
        need(known, f"names the limit {name}, which no row made")
        limit = next((one for one in reversed(known.states) if one["revision"] == said["revision"]), None)
        if limit is None:
            need(said["revision"] <= known.last()["revision"], f"rests on revision {said['revision']} of the limit {name}, which no row made")
            raise NotRecomputable("limits of a state that was changed often since")
        span, who, most, refill = meter_of(limit, row)
        same = said["span"] == span and said.get("each", False) is limit["each"] and said["most"] == most
        need(same and limit["on"] == "refuse" and is_unit(limit, said["took"]), f"says the limit {name} otherwise than it is")
        fit = known.fit(row, capabilities)
        need(fit is not False, f"is refused by the limit {name}, which is not for it")
        if known.is_forgotten(span):
            raise NotRecomputable(OF_LONG_AGO)
        if self.cut:
            raise NotRecomputable(TOO_MANY)
        meter, at = known.find(span, who) or Meter(), ms_of(row["recorded_at"])
        need(said["n"] <= meter.state[0], f"names change {said['n']} of a meter of the limit {name}, which no row made")
        then = NEW_METER if said["n"] == 0 else meter.state if said["n"] == meter.state[0] else meter.past.get(said["n"])
        if then is None:
            raise NotRecomputable(MOVED_ON)
        used = used_of(then, refill, at)
        need(used == said["used"], f"says that {said['used']} of the limit {name} were used, but it was {used}")
        full = not has_room(then, said["took"], most, refill, at)
        need(full, f"is refused, but the limit {name} had room: {used} and {said['took']} of {most}")
        if fit is None:
            raise NotRecomputable(UNSAID_SCOPE)

    def keep(self, requests):
        """Forgets what calls hold that no outcome will end: a start has left them behind."""
        self.holds = {request: held for request, held in self.holds.items() if request in requests}

    def left(self):
        if not self.limits:
            return {}
        limits = {
            name: {
                "states": list(one.states), "removed": one.removed, "forgotten": one.forgotten,
                "meters": {
                    span: {who: [*meter.state, meter.open] for who, meter in meters.items()} for span, meters in one.spans.items()
                },
            } for name, one in self.limits.items()
        }  # fmt: skip
        return {"limits": limits, **({"holds": self.holds} if self.holds else {})}

    def take(self, left):
        for name, one in left.get("limits", {}).items():
            limit = self.limits[name] = Limit(one["states"][0])
            limit.states = deque(one["states"], maxlen=KEPT_STATES)
            limit.removed, limit.forgotten = one["removed"], one["forgotten"]
            limit.spans = {
                span: {who: Meter(tuple(said[:4]), said[4]) for who, said in meters.items()} for span, meters in one["meters"].items()
            }
        self.holds, self.cut = dict(left.get("holds", {})), left["open_is_cut"]


def same_json(one, other):
    """To Python 1 is true; in JSON it is not."""
    return canonical(READ.decode(json.dumps(one))) == canonical(READ.decode(json.dumps(other)))


def is_unit(limit, took):
    return took == 1 or limit["measure"] in ("cost", "tokens")


def raise_worst(faults):
    wrong = [one for one in faults if isinstance(one, Contradiction)]
    for one in wrong or [one for one in faults if one is not None]:
        raise one


IS_METER = row_of(*[is_place] * 5)
IS_LIMIT = members(
    states=lambda value: bool(value) and list_of(is_limit)(value), removed=maybe(is_text), forgotten=maybe(is_text),
    meters=map_of(map_of(IS_METER)),
)  # fmt: skip
IS_HELD = row_of(is_text, is_text, is_text, is_place, maybe(is_place))


# ---- The tree: #tree ------------------------------------------------------------------------------------


def leaf_hash(leaf):
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


class Tree:
    """RFC 6962, section 2.1: the roots of the perfect subtrees, largest first, each with the number of its leaves."""

    def __init__(self):
        self.peaks = []
        self.size = 0

    def add(self, hash_of_leaf):
        count = 1
        while self.peaks and self.peaks[-1][1] == count:
            hash_of_leaf = node_hash(self.peaks.pop()[0], hash_of_leaf)
            count *= 2
        self.peaks.append((hash_of_leaf, count))
        self.size += 1

    def root(self):
        return folded([peak for peak, _ in self.peaks])


def folded(peaks):
    root = None
    for peak in reversed(peaks):
        root = peak if root is None else node_hash(peak, root)
    return hashlib.sha256(b"").digest() if root is None else root


def root_by_inclusion(leaf, index, size, proof):
    """RFC 9162, section 2.1.3.2. None where the proof has not the length that it must have."""
    if not 0 <= index < size:
        return None
    one, last, root = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return None
        if one & 1 or one == last:
            root = node_hash(sibling, root)
            while not one & 1 and one:
                one, last = one >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        one, last = one >> 1, last >> 1
    return root if last == 0 else None


# ---- Signed notes: C2SP signed-note, tlog-checkpoint, tlog-cosignature, tlog-proof ----------------------


class Malformed(Exception):
    """A text is no key, note, checkpoint or proof."""


def unbase64(text):
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Malformed("it holds what is not base64") from error
    if not text or base64.b64encode(data).decode() != text:
        raise Malformed("it holds what is not base64")
    return data


class Key:
    """`<name>+<id>+<base64 of algorithm and key>`; algorithm 1 signs notes, 4 cosigns checkpoints."""

    def __init__(self, text):
        found = re.fullmatch(r"([^+\s]+)\+([0-9a-f]{8})\+(\S+)", text.strip())
        if not found:
            raise Malformed("a verifier key is <name>+<8 hex digits>+<base64>")
        self.name, self.id = found[1], found[2]
        encoded = unbase64(found[3])
        if len(encoded) != 33 or encoded[0] not in (1, 4):
            raise Malformed("a verifier key of another algorithm than Ed25519")
        if hashlib.sha256(self.name.encode() + b"\n" + encoded).hexdigest()[:8] != self.id:
            raise Malformed("the id of the verifier key is not the digest of its name and key")
        self.is_witness, self.public = encoded[0] == 4, encoded[1:]

    def signed(self, note):
        """False; True; or the instant at which a witness has cosigned, in s."""
        own = [body for name, id_of, body in note.signatures if (name, id_of) == (self.name, self.id)]
        if len(own) != 1:
            return False
        if not self.is_witness:
            return len(own[0]) == 64 and ed25519(self.public, note.text.encode(), own[0])
        if len(own[0]) != 72:
            return False
        at = int.from_bytes(own[0][:8], "big")
        if at > LAST_SECOND:
            return False
        said = f"cosignature/v1\ntime {at}\n{note.text}".encode()
        return at if ed25519(self.public, said, own[0][8:]) else False


LAST_SECOND = 253402300799  # of the year 9999
MOST_SIGNATURES = 100  # of one note


class Note:
    """A signed checkpoint. Verifies nothing."""

    def __init__(self, whole):
        end = whole.rfind("\n\n")
        if end < 0 or not whole.endswith("\n") or re.search("[\x00-\x09\x0b-\x1f\ud800-\udfff]", whole) or len(whole) > 1_000_000:
            raise Malformed("a signed note is a text, an empty line, and lines of signatures")
        self.text, self.signatures = whole[: end + 1], []
        if whole.count("\n", end + 2) > MOST_SIGNATURES:
            raise Malformed("a note with more than 100 signatures")
        for line in whole[end + 2 : -1].split("\n"):
            found = re.fullmatch(r"— ([^+\s\ufeff]+) (\S+)", line)
            data = unbase64(found[2]) if found else b""
            if len(data) < 5:
                raise Malformed("a line of a signature is — <name> <base64>")
            self.signatures.append((found[1], data[:4].hex(), data[4:]))
        self.origin, size, root, *_ = [*self.text.split("\n"), "", "", ""]
        if not self.origin or not re.fullmatch(r"0|[1-9][0-9]{0,15}", size):
            raise Malformed("a checkpoint is an origin, a size and a root, each on a line")
        self.size, self.root = int(size), unbase64(root)
        if len(self.root) != 32 or self.size > LARGEST:
            raise Malformed("the root of a checkpoint has 32 bytes, and its size is below 2^53")

    def is_signed(self, keys):
        return any(key.signed(self) is not False for key in keys)


WHOLE_NOTE = re.compile(
    r"^[^\n]+\n(?:0|[1-9][0-9]{0,15})\n[A-Za-z0-9+/]{43}=\n\n(?:— [^\n]+\n)+", re.MULTILINE
)  # fmt: skip


def notes(text):
    """As the file of an anchor holds them (#anchors). What a crash has left half-written is passed over."""
    found = []
    for whole in WHOLE_NOTE.findall(text):
        try:
            found.append(Note(whole))
        except Malformed:
            pass
    return found


P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def ed25519(public, message, signature):
    """RFC 8032, section 5.1.7."""
    point, first = decompressed(public), decompressed(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if point is None or first is None or scalar >= ORDER:
        return False
    digest = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % ORDER
    left, right = times(BASE, scalar), plus(first, times(point, digest))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


def plus(one, other):
    a, b = (one[1] - one[0]) * (other[1] - other[0]) % P, (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * one[3] * other[3] * D % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(point, scalar):
    total = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            total = plus(total, point)
        point, scalar = plus(point, point), scalar >> 1
    return total


def decompressed(data):
    y, sign = int.from_bytes(data, "little") & (1 << 255) - 1, data[31] >> 7
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = decompressed((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


# ---- Time stamps: #stamps (RFC 3161, RFC 5652, RFC 5280) ------------------------------------------------


class Unfit(Exception):
    """A time stamp that does not hold: half a sentence about it."""


NOT_READ = (ValueError, IndexError, OverflowError, TypeError)  # of what is no ASN.1, or another than it should be
SEQUENCE, SET, INTEGER, BITS, OCTETS, OID, FIRST = 0x30, 0x31, 0x02, 0x03, 0x04, 0x06, 0xA0
STAMP_LIMIT = 65536
TST_INFO, SIGNED_DATA = "1.2.840.113549.1.9.16.1.4", "1.2.840.113549.1.7.2"
DIGESTS = {f"2.16.840.1.101.3.4.2.{n}": name for n, name in ((1, "sha256"), (2, "sha384"), (3, "sha512"))}
SIGNATURES = {f"1.2.840.10045.4.3.{n}": ("ec", name) for n, name in ((2, "sha256"), (3, "sha384"), (4, "sha512"))}
SIGNATURES.update({f"1.2.840.113549.1.1.{n}": ("rsa", name) for n, name in ((11, "sha256"), (12, "sha384"), (13, "sha512"))})
RSA_ENCRYPTION, EC_KEY = "1.2.840.113549.1.1.1", "1.2.840.10045.2.1"
TIME_STAMPING = "1.3.6.1.5.5.7.3.8"
KEY_ID, USAGE, NAMES, BASIC, NAME_LIMITS, POLICIES, ISSUER_KEY_ID, PURPOSE = (f"2.5.29.{n}" for n in (14, 15, 17, 19, 30, 32, 35, 37))
# Of the curves of FIPS 186-4: p, b, order and base point; a is -3.
CURVES = {
    "1.2.840.10045.3.1.7": (
        2**256 - 2**224 + 2**192 + 2**96 - 1,
        0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
        0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
    "1.3.132.0.34": (
        2**384 - 2**128 - 2**96 + 2**32 - 1,
        0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF,
        0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
        0xAA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A385502F25DBF55296C3A545E3872760AB7,
        0x3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C00A60B1CE1D7E819D7A431D7C90EA0E5F,
    ),
    "1.3.132.0.35": (
        2**521 - 1,
        0x0051953EB9618E1C9A1F929A21A0B68540EEA2DA725B99B315F3B8B489918EF109E156193951EC7E937B1652C0BD3BB1BF073573DF883D2C34F1EF451FD46B503F00,
        0x01FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFA51868783BF2F966B7FCC0148F709A5D03BB5C9B8899C47AEBB6FB71E91386409,
        0x00C6858E06B70404E9CD9E3ECB662395B4429C648139053FB521F828AF606B4D3DBAA14B5E77EFE75928FE1DC127A2FFA8DE3348B3C1856A429BF97E7E31C2E5BD66,
        0x011839296A789A3BC0045C8A5FB42C7D1BD998F54449579B446817AFBD17273E662C97EE72995EF42640C550B9013FAD0761353C7086A272C24088BE94769FD16650,
    ),
}


def value_at(data, at, depth=0):
    """(tag, content, raw) of the value of ASN.1 at a place; its length may be left open. Raises ValueError."""
    if at + 2 > len(data) or data[at] == 0 or data[at] & 0x1F == 0x1F or depth > 12:
        raise ValueError("this is no ASN.1")
    first, start = data[at + 1], at + 2
    if first == 0x80 and data[at] & 0x20:
        end = start
        while end < len(data) and data[end]:
            end += len(value_at(data, end, depth + 1)[2])
        if data[end : end + 2] != b"\0\0":
            raise ValueError("a value does not end")
        return data[at], data[start:end], data[at : end + 2]
    if first >= 0x80:
        start += first - 0x80
        if not at + 2 < start <= at + 5:
            raise ValueError("a length of more than three bytes, or none")
        first = int.from_bytes(data[at + 2 : start], "big")
    if start + first > len(data):
        raise ValueError("a value does not end")
    return data[at], data[start : start + first], data[at : start + first]


def values(data):
    found, at = [], 0
    while at < len(data):
        found.append(value_at(data, at))
        at += len(found[-1][2])
    return found


def content(value, tag):
    if value[0] != tag:
        raise ValueError("a value of another tag")
    return value[1]


def parts(value, tag=SEQUENCE):
    return values(content(value, tag))


def octets(value):
    if value[0] == OCTETS | 0x20:
        return b"".join(content(piece, OCTETS) for piece in values(value[1]))
    return content(value, OCTETS)


def integer(value):
    return int.from_bytes(content(value, INTEGER), "big", signed=True)


def oid(value):
    numbers, number = [], 0
    for byte in content(value, OID):
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers, number = numbers + [number], 0
    if not numbers:
        return ""
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - first * 40] + numbers[1:]))


def bits(value):
    data = content(value, BITS)
    if data[:1] != b"\0":
        raise ValueError("a bit string that is not of whole bytes")
    return data[1:]


class Certificate:
    """An X.509 certificate as it says of itself. Raises ValueError."""

    def __init__(self, data):
        (whole,) = values(data)
        self.body, algorithm, signature = parts(whole)
        self.raw, self.algorithm, self.signature = data, oid(parts(algorithm)[0]), bits(signature)
        said = [value for value in parts(self.body) if value[0] != FIRST]
        self.serial, self.issuer, self.subject = said[0][2], said[2][2], said[4]
        self.since, self.until = (moment(value) for value in parts(said[3]))
        kind, key = parts(said[5])
        self.kind, self.key = [value for value in parts(kind)], bits(key)
        self.extensions, self.critical = {}, set()
        for block in [value for value in said[6:] if value[0] == 0xA3]:
            for extension in parts(values(block[1])[0]):
                name, *flag, held = parts(extension)
                if oid(name) in self.extensions:
                    raise ValueError("an extension is there twice")
                self.extensions[oid(name)] = octets(held)
                if flag and flag[0][1] != b"\0":
                    self.critical.add(oid(name))
        basic = values(self.extensions[BASIC])[0] if BASIC in self.extensions else (SEQUENCE, b"", b"")
        said = parts(basic)
        self.is_ca = any(tag == 0x01 and data != b"\0" for tag, data, _ in said)
        self.length = next((integer(value) for value in said if value[0] == INTEGER), None)
        usage = self.extensions.get(USAGE)
        self.usage = None if usage is None else (content(values(usage)[0], BITS)[1:] or b"\0")[0]
        purposes = self.extensions.get(PURPOSE)
        self.purposes = None if purposes is None else [oid(value) for value in parts(values(purposes)[0])]
        self.name = self.common_name() or "the certificate " + hashlib.sha256(data).hexdigest()

    def common_name(self):
        """That of the subject, fit for a terminal."""
        for attribute in [pair for names in parts(self.subject) for pair in parts(names, SET)]:
            kind, (tag, data, _) = parts(attribute)
            if oid(kind) == "2.5.4.3":
                text = data.decode({0x0C: "utf-8", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}.get(tag, "latin-1"), "replace")
                unfit = [" " if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") else one for one in text]
                return "".join(unfit).strip()[:64]
        return ""

    def is_strong(self):
        if oid(self.kind[0]) == EC_KEY:
            return len(self.kind) > 1 and self.kind[1][0] == OID and oid(self.kind[1]) in CURVES
        if oid(self.kind[0]) != RSA_ENCRYPTION:
            return False
        modulus, exponent = (integer(value) for value in parts(values(self.key)[0]))
        return 2048 <= modulus.bit_length() <= 8192 and 65537 <= exponent < 2**256 and exponent % 2 == 1

    def has_signed(self, algorithm, data, signature):
        """`algorithm`: its kind and digest."""
        if not self.is_strong() or algorithm[0] != ("ec" if oid(self.kind[0]) == EC_KEY else "rsa"):
            return False
        verify_by = rsa if algorithm[0] == "rsa" else ecdsa
        return verify_by(self, hashlib.new(algorithm[1], data).digest(), algorithm[1], signature)


def moment(value):
    text = value[1].decode("ascii")
    return datetime.strptime(("20" if text[:2] < "50" else "19") + text if value[0] == 0x17 else text, "%Y%m%d%H%M%SZ")


def rsa(certificate, digest, name, signature):
    """RFC 8017, section 8.2.2."""
    modulus, exponent = (integer(value) for value in parts(values(certificate.key)[0]))
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(signature, "big")
    if len(signature) != size or number >= modulus:
        return False
    last = {"sha256": 1, "sha384": 2, "sha512": 3}[name]
    info = bytes([0x30, 17 + len(digest)]) + bytes.fromhex(f"300d06096086480165030402{last:02x}050004") + bytes([len(digest)]) + digest
    return pow(number, exponent, modulus).to_bytes(size, "big") == b"\0\1" + b"\xff" * (size - len(info) - 3) + b"\0" + info


def ecdsa(certificate, digest, _, signature):
    """FIPS 186-4, section 6.4."""
    p, b, order, *base = CURVES[oid(certificate.kind[1])]
    size = (p.bit_length() + 7) // 8
    key = certificate.key
    x, y = int.from_bytes(key[1 : size + 1], "big"), int.from_bytes(key[size + 1 :], "big")
    if len(key) != 2 * size + 1 or key[0] != 4 or max(x, y) >= p or (x * x * x - 3 * x + b - y * y) % p:
        return False
    (whole,) = values(signature)
    r, s = (integer(value) for value in parts(whole))
    if not (0 < r < order and 0 < s < order):
        return False
    number = int.from_bytes(digest, "big") >> max(0, 8 * len(digest) - order.bit_length())
    inverse = pow(s, -1, order)
    point = added(multiplied(tuple(base), number * inverse % order, p), multiplied((x, y), r * inverse % order, p), p)
    return point is not None and point[0] % order == r


def added(one, other, p):
    """The sum of two points of a curve whose a is -3; None is the point at infinity."""
    if one is None or other is None:
        return one or other
    if one[0] == other[0] and (one[1] + other[1]) % p == 0:
        return None
    if one == other:
        slope = 3 * (one[0] * one[0] - 1) * pow(2 * one[1], -1, p)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, p)
    x = (slope * slope - one[0] - other[0]) % p
    return x, (slope * (one[0] - x) - one[1]) % p


def multiplied(point, scalar, p):
    total = None
    while scalar:
        if scalar & 1:
            total = added(total, point, p)
        point, scalar = added(point, point, p), scalar >> 1
    return total


class Stamp:
    """A TimeStampResp as it says of itself. Raises Unfit."""

    def __init__(self, data):
        if len(data) > STAMP_LIMIT:
            raise Unfit(f"is longer than {STAMP_LIMIT} bytes")
        try:
            self.read(data)
        except NOT_READ as error:
            raise Unfit("cannot be read") from error

    def read(self, data):
        (response,) = values(data)
        status, *token = parts(response)
        code = content(parts(status)[0], INTEGER).hex()
        if code not in ("00", "01"):
            raise Unfit(f"was refused with status {code}")
        kind, held = parts(token[0])[:2]
        if oid(kind) != SIGNED_DATA:
            raise ValueError("there is no signed token")
        _, _, encapsulated, *rest = parts(values(content(held, FIRST))[0])
        kind, wrapped = parts(encapsulated)
        if oid(kind) != TST_INFO:
            raise ValueError("the token is of something else")
        self.content = octets(values(content(wrapped, FIRST))[0])
        certificates = next((value[1] for value in rest if value[0] == FIRST), b"")
        self.certificates = [value[2] for value in values(certificates) if value[0] == SEQUENCE]
        (signer,) = parts(rest[-1], SET)
        _, named, digest, signed, algorithm, signature = parts(signer)[:6]
        self.named = [value[2] for value in parts(named)]
        self.digest, self.algorithm = oid(parts(digest)[0]), oid(parts(algorithm)[0])
        self.signature, self.signed = octets(signature), bytes([SET]) + signed[2][1:]
        self.attributes = [(oid(kind), parts(held, SET)) for kind, held in (parts(one) for one in parts(signed, FIRST))]
        (info,) = values(self.content)
        version, _, imprint, _, time, *_ = parts(info)
        algorithm, digest = parts(imprint)
        if integer(version) != 1:
            raise ValueError("it is of another version")
        if oid(parts(algorithm)[0]) != "2.16.840.1.101.3.4.2.1":
            raise Unfit("is of another digest than SHA-256")
        self.imprint = octets(digest)
        found = re.fullmatch(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d{1,9}))?Z", content(time, 0x18).decode("ascii"), re.ASCII)
        if not found:
            raise ValueError("its time is none")
        *day, fraction = found.groups()
        self.at = datetime(*map(int, day), int((fraction or "").ljust(3, "0")[:3]) * 1000)
        self.text = "{}-{}-{}T{}:{}:{}.".format(*day) + (fraction or "").ljust(3, "0")[:3] + "Z"

    def only(self, kind):
        """The one value of the one attribute of a type; None where it is not there."""
        found = [held for name, held in self.attributes if name == kind]
        if len(found) > 1 or (found and len(found[0]) != 1):
            raise ValueError("an attribute is there twice")
        return found[0][0] if found else None

    def signer(self):
        """Verifies the stamp by itself; gives the certificate that has signed it, and the others. Raises Unfit."""
        if len(self.certificates) > 9:
            raise Unfit("brings more than 9 certificates")
        try:
            return self.verified()
        except NOT_READ as error:
            raise Unfit("cannot be read") from error

    def verified(self):
        named = next((data for data in self.certificates if named_by(data) == self.named), None)
        if named is None:
            raise Unfit("does not bring the certificate that it names")
        own = Certificate(named)
        digest = DIGESTS.get(self.digest)
        if digest is None:
            raise Unfit("is signed over another digest than SHA-256, SHA-384 or SHA-512")
        kind, said = self.only("1.2.840.113549.1.9.3"), self.only("1.2.840.113549.1.9.4")
        if not kind or not said or oid(kind) != TST_INFO or octets(said) != hashlib.new(digest, self.content).digest():
            raise Unfit("is not what was signed")
        bound = [self.only(f"1.2.840.113549.1.9.16.2.{n}") for n in (12, 47)]
        if not any(bound) or not all(binds(one, own.raw, usual) for one, usual in zip(bound, ("sha1", "sha256")) if one):
            raise Unfit("does not bind the certificate of its signer")
        algorithm = ("rsa", digest) if self.algorithm == RSA_ENCRYPTION else SIGNATURES.get(self.algorithm)
        if algorithm is None or algorithm[1] != digest:
            raise Unfit("is signed by another algorithm than ECDSA or RSA (PKCS #1 v1.5)")
        if not own.has_signed(algorithm, self.signed, self.signature):
            raise Unfit("has a signature that is not by its certificate, or by a weak key")
        signs = own.usage is None or (own.usage & 0xC0 and not own.usage & 0x3F)
        if own.purposes != [TIME_STAMPING] or PURPOSE not in own.critical or not signs or own.is_ca:
            raise Unfit("is signed by a certificate that is not for time stamps alone")
        if not own.since <= self.at <= own.until:
            raise Unfit("is signed by a certificate that was not valid then")
        others = []
        for data in [one for one in self.certificates if one != own.raw]:
            try:
                others.append(Certificate(data))
            except NOT_READ:  # it is not needed, or the chain is not found
                pass
        return own, others


def named_by(certificate):
    """Issuer and serial number of a certificate, with tag and length."""
    said = [value for value in parts(parts(values(certificate)[0])[0]) if value[0] != FIRST]
    return [said[2][2], said[0][2]]


def binds(attribute, certificate, usual):
    """Whether the first certificate of a SigningCertificate, or of one of the second version, is this one."""
    named, *_ = parts(parts(attribute)[0])
    head, *rest = parts(named)
    digest = usual
    if usual != "sha1" and head[0] == SEQUENCE:
        digest, head = DIGESTS.get(oid(parts(head)[0])), rest[0]
    return digest is not None and hashlib.new(digest, certificate).digest() == octets(head)


UNDERSTOOD = {KEY_ID, USAGE, NAMES, BASIC, POLICIES, ISSUER_KEY_ID, PURPOSE}


def ca_in(block):
    """The certificate of a CA in a PEM block, or None."""
    try:
        one = Certificate(base64.b64decode(block))
        return one if issues(one) else None
    except NOT_READ:
        return None


class Authority:
    """CAs of a time-stamping authority that whoever verifies trusts."""

    def __init__(self, file):
        self.given = file
        blocks = re.findall(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----", text_of(file))
        self.cas = [ca for ca in map(ca_in, blocks) if ca]
        if not self.cas:
            raise Malformed(f"{file}: there is no certificate of a CA in it")
        if len(self.cas) < len(blocks):
            print(f"{file}: {len(blocks) - len(self.cas)} blocks of it are no CA's, and are left out", file=sys.stderr)

    def vouches(self, own, others, at):
        """Whether a certificate chains to a CA of this authority: itself, at most one more, and the CA."""
        paths = [[own]] + [[own, one] for one in others if one.subject[2] == own.issuer]
        paths = [path + [ca] for path in paths for ca in self.cas if ca.subject[2] == path[-1].issuer]
        return any(holds(path, at) for path in paths)

    def is_named(self, own, others):
        """Whether names of issuers lead from a certificate to a CA of this authority, whoever has signed them."""
        met = [own]
        for one in met:
            if any(ca.subject[2] == one.issuer for ca in self.cas):
                return True
            met += [other for other in others if other.subject[2] == one.issuer and other not in met]
        return False


def issues(certificate):
    return certificate.is_ca and (certificate.usage is None or bool(certificate.usage & 0x04))


def holds(path, at):
    """RFC 5280, section 6.1, without policies; a CA that limits names is not judged here, and does not hold."""
    try:
        return path_holds(path, at)
    except NOT_READ:
        return False


def path_holds(path, at):
    for place, one in enumerate(path):
        if not (one.since <= at <= one.until and one.is_strong() and one.critical <= UNDERSTOOD):
            return False
        if one.purposes is not None and TIME_STAMPING not in one.purposes:
            return False
        if place and not (issues(one) and NAME_LIMITS not in one.extensions and (one.length is None or place - 1 <= one.length)):
            return False
        if place + 1 < len(path):
            algorithm = SIGNATURES.get(one.algorithm)
            if algorithm is None or not path[place + 1].has_signed(algorithm, one.body[2], one.signature):
                return False
    return True


class Watch:
    """Looks at time stamps: beside checkpoints, and those that were handed over."""

    def __init__(self, authorities, given):
        self.authorities, self.silent = authorities, list(authorities)
        self.lost, self.stamped, self.unchecked = {}, {}, 0
        for file in given:
            with open(file, "rb") as opened:
                data = opened.read(STAMP_LIMIT + 1)
            self.lost[file] = imprint_of(data), data

    def see(self, note, beside=()):
        """Returns what does not hold, each as a sentence."""
        if not beside and not self.lost:
            return []
        found, digest = [], hashlib.sha256(note.text.encode()).digest()
        for data in [*beside, *self.take(digest)]:
            try:
                self.judge(Stamp(data), note.size, digest)
            except Unfit as error:
                found.append(f"the time stamp of the checkpoint of {note.size} rows {error}")
        return found

    def take(self, digest):
        """Those of the given ones, not found yet, that are of this text."""
        found = [file for file, (imprint, _) in self.lost.items() if imprint == digest]
        return [self.lost.pop(file)[1] for file in found]

    def judge(self, stamp, size, digest):
        if stamp.imprint != digest:
            raise Unfit("is of another text")
        if not self.authorities:
            self.unchecked += 1
            return
        own, others = stamp.signer()
        by = [one for one in self.authorities if one.vouches(own, others, stamp.at)]
        if not by and any(one.is_named(own, others) for one in self.authorities):
            raise Unfit("is not by the CA that it names")
        if not by:
            self.unchecked += 1
            return
        self.silent = [one for one in self.silent if one not in by]
        count, last, at = self.stamped.get(own.name, (0, -1, ""))
        self.stamped[own.name] = (count + 1, last, at) if last > size else (count + 1, size, stamp.text)

    def end(self):
        """What is wrong beside single checkpoints, each as a sentence."""
        for file, (imprint, _) in self.lost.items():
            yield f"the time stamp {file} " + ("is of no checkpoint that is here" if imprint else "cannot be read")
        for one in self.silent:
            yield f"no checkpoint is stamped by an authority of {one.given}"

    def lines(self):
        for name, (count, size, at) in self.stamped.items():
            yield f"{counts(count, 'time stamp')} by {name}, the last of the checkpoint of {size} rows at {at}"
        if self.unchecked:
            yield f"{counts(self.unchecked, 'time stamp')} whose authority was not checked"


def imprint_of(data):
    try:
        return Stamp(data).imprint
    except Unfit:
        return None


class Trusted:
    """What whoever verifies has from elsewhere than the log."""

    def __init__(self, options):
        self.keys = [key for given in options.key for key in keys_in(given, False)]
        self.witnesses = [key for given in options.witness for key in keys_in(given, True)]
        self.notes = [note for file in options.checkpoint for note in notes(text_of(file, "replace"))]
        if options.checkpoint and not self.notes:
            raise Malformed("there is no checkpoint in the file that was given")
        self.since = None  # the checkpoint behind which is verified
        if options.since:
            self.since = max(notes(text_of(options.since, "replace")), key=lambda note: note.size, default=None)
            if not self.since or not self.since.size:
                raise Malformed(f"{options.since}: there is no checkpoint in it, or one of no rows")
            self.notes.append(self.since)
        self.stamps = Watch([Authority(file) for file in options.tsa], options.timestamp)

    def since_faults(self, own):
        """What is wrong with the checkpoint that a verification begins behind. `own`: the log's keys."""
        if not self.since:
            return
        what = f"the kept checkpoint of {self.since.size} rows"
        if not self.since.is_signed(self.keys or own):
            yield f"{what} is not signed by {'the key that was given' if self.keys else 'its log'}"
        for key in self.witnesses:
            if key.signed(self.since) is False:
                yield f"{what} is not cosigned by the witness {key.name}"

    def anything(self):
        return bool(self.keys or self.witnesses or self.notes or self.stamps.authorities or self.stamps.lost)


def text_of(file, errors="strict"):
    with open(file, encoding="utf-8", errors=errors, newline="") as opened:
        return opened.read()


def keys_in(given, of_witness):
    is_file = os.path.exists(given)
    text = re.sub(r"(?m)^\s*#.*$", "", text_of(given)) if is_file else given
    found = [key_or_none(line) for line in text.split("\n") if line.strip()]
    keys = [key for key in found if key and key.is_witness == of_witness]
    # A witness that must have cosigned is never left out.
    if not keys or (of_witness and len(keys) < len(found)):
        raise Malformed(f"{given.strip() or 'nothing'} is not the key of a {'witness' if of_witness else 'log'}")
    if len(keys) < len(found):
        print(f"{given}: {len(found) - len(keys)} lines of it are no key of a log, and are left out", file=sys.stderr)
    return keys


def key_or_none(line):
    try:
        return Key(line)
    except Malformed:
        return None


class Seals:
    """Holds rows against checkpoints that were kept elsewhere: what they are in tree, and who has signed."""

    def __init__(self, trusted):
        self.trusted, self.tree = trusted, Tree()
        self.wanted = deque(sorted(trusted.notes, key=lambda note: note.size))
        self.sealed = self.checkpoints = self.signed = 0
        self.kept = max([note.size for note in trusted.notes], default=0)
        self.problems, self.witnessed = [], {}
        named = trusted.keys or trusted.notes
        self.origin = (named[0].name if trusted.keys else named[0].origin) if named else None

    def add(self, leaf):
        self.meet_due()  # a checkpoint of no rows, before the first one
        self.tree.add(leaf_hash(leaf))
        self.meet_due()

    def meet_due(self):
        while self.wanted and self.wanted[0].size <= self.tree.size:
            self.meet(self.wanted.popleft(), self.tree.root)

    def meet(self, note, root):
        """`root`: gives the root of the rows at the size of the note."""
        look(note, self.trusted, self)
        if root() == note.root:
            self.sealed, self.checkpoints = note.size, self.checkpoints + 1
        else:
            self.problems.append(f"the checkpoint of {note.size} rows has another root than the rows")

    def end(self, rows):
        """Returns why rows are missing at the end, or None."""
        for note in self.wanted:
            look(note, self.trusted, self)
        if self.trusted.keys and self.signed < max([self.sealed] + [note.size for note in self.wanted]):
            self.problems.append("the newest checkpoint is not signed by the key that was given")
        if self.trusted.keys and not self.checkpoints and not self.wanted and not self.problems:
            self.problems.append("there is no checkpoint that the key could have signed")
        for key in self.trusted.witnesses:
            if key.name not in self.witnessed:
                self.problems.append(f"no checkpoint is cosigned by the witness {key.name}")
        self.problems.extend(self.trusted.stamps.end())
        if not self.wanted:
            return None
        return f"there are {rows} rows, but a checkpoint of {self.wanted[0].size} rows was signed"

    def vouched(self):
        return not self.problems and bool(self.signed or self.trusted.notes)


def look(note, trusted, seals):
    seals.problems.extend(trusted.stamps.see(note))
    if note.origin != seals.origin:
        seals.problems.append(f"the kept checkpoint of {note.size} rows is of another log: {note.origin}")
    if note.is_signed(trusted.keys):  # that another key of the log has signed an older one is as good: it was kept
        seals.signed = max(seals.signed, note.size)
    for key in trusted.witnesses:
        at = key.signed(note)
        if at is not False:
            seals.witnessed[key.name] = (note.size, at)


def conclusion(vouched, witnessed, stamps, kept=0):
    """The last line: who outside has seen the rows."""
    if not vouched:  # a witness cosigns, and an authority stamps, any log: they do not say which one is meant
        return "CONSISTENT, NOT WITNESSED"
    by = ", ".join(f"{name} at {instant(at)}" for name, (_, at) in witnessed.items())
    stamped = ", ".join(f"{name} at {at}" for name, (_, _, at) in stamps.items())
    seen = (f", WITNESSED by {by}" if by else "") + (f", STAMPED by {stamped}" if stamped else "")
    alone = f"KEPT outside as a checkpoint of {kept} rows" if kept else "SEEN by nobody outside"
    return "VERIFIED" + (seen or f", {alone}")


def instant(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


# ---- A receipt: #receipts -------------------------------------------------------------------------------


def receipt_in(file):
    """The rows of a receipt; None where the file is none."""
    try:
        if os.path.getsize(file) > RECEIPT_LIMIT:
            return None
        with open(file, "rb") as opened_file:
            data = opened_file.read()
    except OSError:
        return None
    value = plain(data)
    rows = value.get("rows") if isinstance(value, dict) else None
    shape = {"leaf": str, "stream": str, "proof": str}
    if not isinstance(rows, list) or not rows:
        return None
    if not all(isinstance(row, dict) and all(isinstance(row.get(m), k) for m, k in shape.items()) for row in rows):
        return None
    if not all(is_integer(row.get("seq")) for row in rows):
        return None
    if ambiguity(data):
        raise Malformed("the receipt names a member twice in one object, or is too deep")
    return value


def ambiguity(data):
    """Why two readers may take a JSON text for two different things (#receipts): "twice", "deep" or None."""
    open_names, may_be_name, found = [], False, None
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}\[\],]', data.decode("utf-8")):
        text = token[0]
        if text[0] == '"':
            if may_be_name and open_names[-1:] not in ([], [None]):
                name = json.loads(text)
                found = "twice" if name in open_names[-1] else found
                open_names[-1].add(name)
            may_be_name = False
        elif text in "{[":
            if len(open_names) == 64:
                return "deep"
            open_names.append(set() if text == "{" else None)
            may_be_name = True
        elif text == ",":
            may_be_name = True
        else:
            open_names.pop()
    return found


RECEIPT_LIMIT = 4 << 20


class Wrong(Exception):
    """What is wrong with a receipt; `code` of the exit."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def verify_receipt(receipt, trusted, body):
    """Prints what a receipt shows. Raises Wrong."""
    witnessed, details, vouched, first, most = {}, [], bool(trusted.keys or trusted.notes), None, 0
    for row in receipt["rows"]:
        place = f"{row['stream']}:{row['seq']}"
        leaf = plain(row["leaf"].encode("utf-8", "surrogatepass"))  # which no lone surrogate survives
        there = isinstance(leaf, dict) and is_integer(leaf.get("seq"))
        if not there or (leaf.get("stream"), leaf.get("seq")) != (row["stream"], row["seq"]):
            raise Wrong(2, f"row {place} is not what its leaf says")
        if first is not None and leaf.get("request_id") != first.get("request_id"):
            raise Wrong(2, f"row {place} is of another request")
        if first is not None and leaf.get("status") in ("allowed", "denied"):
            raise Wrong(2, f"row {place} is a decision, which comes first")
        first = first or leaf
        try:
            index, hashes, note = proof_in(row["proof"])
        except Malformed as error:
            raise Wrong(3, f"the proof of row {place} cannot be read") from error
        of_leaf = leaf_hash(row["leaf"].encode("utf-8", "surrogatepass"))
        if root_by_inclusion(of_leaf, index, note.size, hashes) != note.root:
            raise Wrong(3, f"row {place} is not in the checkpoint of {note.size} rows")
        if not is_written(leaf, row["leaf"]):
            raise Wrong(2, f"row {place} is not written as a row is")
        ours = any(key.name == note.origin for key in trusted.keys)
        if trusted.keys and not (ours and note.is_signed(trusted.keys)):
            raise Wrong(3, f"the checkpoint of {note.size} rows is not signed by the key that was given")
        kept = [one for one in trusted.notes if one.size == note.size]
        if kept and (kept[0].root, kept[0].origin) != (note.root, note.origin):
            raise Wrong(3, f"the checkpoint of {note.size} rows is not the one that was kept")
        vouched = vouched and bool(trusted.keys or kept)
        most = max([most] + [one.size for one in kept])
        for key in trusted.witnesses:
            at = key.signed(note)
            if at is not False:
                witnessed[key.name] = (note.size, at)
        for problem in trusted.stamps.see(note):
            raise Wrong(3, problem)
        say(f"row {place}: {leaf.get('status')} {leaf.get('action')} at {leaf.get('recorded_at')}, "
              f"leaf {index} of {note.size} in {note.origin}")  # fmt: skip
        if isinstance(leaf.get("detail"), dict):
            details.append(leaf["detail"])
    for key in trusted.witnesses:
        if key.name not in witnessed:
            raise Wrong(3, f"no checkpoint is cosigned by the witness {key.name}")
    for problem in trusted.stamps.end():
        raise Wrong(3, problem)
    if body is not None:
        label = opened(details, receipt.get("salts"), body)
        if label is None:
            raise Wrong(2, "the body is not the one that was recorded")
        odd = ambiguity(body) if isinstance(plain(body), dict) else None
        if odd and label == "arguments_sha256":
            raise Wrong(2, f"the body {AMBIGUOUS}")
        say(f"{OPENED[label].format(len(body))} ({label})")
        if odd == "twice":
            say(f"it {AMBIGUOUS}")
    for line in trusted.stamps.lines():
        say(line)
    say(conclusion(vouched, witnessed, trusted.stamps.stamped, most))


OPENED = {
    "body_sha256": "the request body of {} bytes is the one that was judged",
    "arguments_sha256": "the arguments in the {} bytes of the body are those that were judged",
    "result_sha256": "the {} bytes are the result that was recorded, not the request",
}
AMBIGUOUS = "names a member twice in one object, or is too deep: two readers can take it for two different things"


def is_written(leaf, text):
    """Whether a leaf is written as a row is: in canonical form, and no deeper."""
    try:
        return not is_deep(leaf, DEEPEST + 1) and written(leaf) == text
    except (ValueError, OverflowError):  # a number that is none
        return False


def proof_in(text):
    """C2SP tlog-proof."""
    head, _, note = text.partition("\n\n")
    first, *said = head.split("\n")
    if said and said[0].startswith("extra "):
        unbase64(said.pop(0)[len("extra ") :])
    if first != "c2sp.org/tlog-proof@v1" or not said or not re.fullmatch(r"index (0|[1-9][0-9]{0,15})", said[0]):
        raise Malformed("it is no proof")
    hashes = [unbase64(line) for line in said[1:]]
    if len(hashes) > 63 or any(len(one) != 32 for one in hashes):
        raise Malformed("it holds what is no hash")
    return int(said[0].split(" ")[1]), hashes, Note(note)


def opened(details, salts, body):
    """The commitment that the body opens (#commitments): as it is, or as the arguments of a tool."""
    forms = {"body_sha256": body, "arguments_sha256": canonical_arguments(body), "result_sha256": body}
    for label, data in forms.items():
        salt = salts.get(label) if isinstance(salts, dict) else None
        # Of one length: else some of the body could be said to be salt, and the rest to be all of it.
        if data is not None and isinstance(salt, str) and re.fullmatch("[0-9a-f]{32}", salt):
            commitment = hashlib.sha256(bytes.fromhex(salt) + data).hexdigest()
            if any(detail.get(label) == commitment for detail in details):
                return label
    return None


def canonical_arguments(body):
    """RFC 8785 of the JSON object that a body is; None where it is none."""
    arguments = plain(body)
    try:
        return written(arguments).encode("utf-8") if isinstance(arguments, dict) else None
    except (ValueError, OverflowError, RecursionError):  # a lone surrogate, a number that is none, brackets a thousand deep
        return None


def written(value):
    """RFC 8785 of any JSON."""
    if isinstance(value, dict):
        members = ordered([(name, written(member)) for name, member in value.items()])
        return "{" + ",".join(f"{text_as_json(name)}:{member}" for name, member in members.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(item) for item in value) + "]"
    return number_as_json(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else text_as_json(value)


def text_as_json(value):
    return json.dumps(value, ensure_ascii=False)


def number_as_json(number):
    """As ECMAScript writes a double: both languages find the same, shortest digits."""
    sign, digits, exponent = Decimal(repr(float(number))).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + exponent
    if text == "0":
        return "0"
    if len(text) <= point <= 21:
        text += "0" * (point - len(text))
    elif 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + text
    else:
        text = text[0] + ("." + text[1:] if len(text) > 1 else "") + f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" * sign + text


# ---- A pack of evidence: #evidence ----------------------------------------------------------------------


SMALL_PACK, INFLATION = 16 << 20, 100  # bytes that all files may have, and more for each byte of the zip (#evidence)
MAX_WHOLE = 64 << 20  # bytes of the files that are read whole
MAX_VALUES = 2_000_000  # of a JSON file, by its commas and brackets
IN_PIECES = (
    "rows.ndjson rows.csv refusals.csv grants.ndjson sign-ins.ndjson tools.json sets-end.json README.md verify.py verify.mjs"
).split()
NAME_IN_ZIP = re.compile(r"(?!.*\.\.)(?:[A-Za-z0-9_.-]+/)*[A-Za-z0-9_.-]+")


def opened_zip(file):
    """A zip that says one thing, whoever reads it (#evidence). Raises Unreadable."""
    opened = zipfile.ZipFile(file)
    length = sum(info.file_size for info in opened.infolist())
    if length > SMALL_PACK + INFLATION * os.path.getsize(file):
        opened.close()
        raise Unreadable(f"its files are {length} bytes long, out of all proportion to the zip")
    try:
        with open(file, "rb") as raw:
            count, start, end = directory_of(raw)
            length = last = 0
            for info in sorted(opened.infolist(), key=lambda one: one.header_offset):
                last, before = end_in_zip(raw, info), last
                if info.header_offset < before or last > start:
                    raise Unreadable(f"{info.filename} does not lie where it should")
                length += 46 + len(info.filename) + len(info.extra) + len(info.comment)
            if count != len(opened.infolist()) or opened.start_dir != start or start + length != end:
                raise Unreadable("its directory is not what its end says")
    except Unreadable:
        opened.close()
        raise
    return opened


def directory_of(raw):
    """How many files a zip has, where its directory begins, and where that must end. Raises Unreadable."""
    at = raw.seek(0, os.SEEK_END) - 22
    raw.seek(max(at - 76, 0))
    tail = raw.read()
    number = lambda data, place, width: int.from_bytes(data[place : place + width], "little")  # noqa: E731
    last, large = tail[-22:], tail[-98:]
    if last[:4] != b"PK\5\6" or last[4:8] != bytes(4) or number(last, 20, 2) or number(last, 8, 2) != number(last, 10, 2):
        raise Unreadable("there is something behind it, or it is on several disks")
    if tail[-42:-38] != b"PK\6\7":
        return number(last, 10, 2), number(last, 16, 4), at
    if len(large) != 98 or large[:4] != b"PK\6\6" or number(tail[-42:], 8, 8) != at - 76:
        raise Unreadable("its end is not where it says")
    return number(large, 32, 8), number(large, 48, 8), at - 76


def end_in_zip(raw, info):
    """Where the bytes of a file end. Raises Unreadable where it may not be read."""
    raw.seek(info.header_offset)
    head = raw.read(30)
    name = raw.read(int.from_bytes(head[26:28], "little"))
    if not NAME_IN_ZIP.fullmatch(info.orig_filename) or info.filename != info.orig_filename or has_two_names(info.extra):
        raise Unreadable("it has a file whose name is of another form")
    if head[:4] != b"PK\3\4" or name != info.filename.encode():
        raise Unreadable(f"{info.filename} does not lie where it should")
    if info.flag_bits & 0x2061 or info.compress_type not in (0, 8):
        raise Unreadable(f"{info.filename} is neither stored nor deflated")
    return info.header_offset + 30 + len(name) + int.from_bytes(head[28:30], "little") + info.compress_size


def has_two_names(extra):
    """Whether a field says another name."""
    while len(extra) >= 4:
        if extra[:2] == b"\x75\x70":
            return True
        extra = extra[4 + int.from_bytes(extra[2:4], "little") :]
    return False


def inflated(raw, at, info):
    """The bytes of a file of a zip, block by block. Raises Unreadable."""
    inflate = zlib.decompressobj(-15)
    left, rest = info.compress_size, b""
    while left or rest:
        if not rest:
            raw.seek(at)
            rest = raw.read(min(left, 1 << 16))
            at, left = at + len(rest), left - len(rest)
        if info.compress_type == 0:
            block, rest = rest, b""
        else:
            try:
                block = inflate.decompress(rest, 1 << 20)
            except zlib.error as error:
                raise Unreadable(f"{info.filename} cannot be inflated") from error
            rest = inflate.unconsumed_tail
        if block:
            yield block
        if inflate.eof:
            return
    if info.compress_type == 8:
        raise Unreadable(f"{info.filename} ends too early")


class Pack:
    """A zip of evidence. Reads files as they are needed; raises Unreadable where it is none."""

    def __init__(self, file):
        self.zip, self.raw = opened_zip(file), open(file, "rb")
        self.sizes = {info.filename: info.file_size for info in self.zip.infolist()}
        if len(self.sizes) != len(self.zip.infolist()):
            raise Unreadable("a file is in the zip twice")
        whole = sum(size for name, size in self.sizes.items() if not (name in IN_PIECES or name.startswith("tiles/")))
        if whole > MAX_WHOLE:
            raise Unreadable(f"its files other than rows, tables and tiles are {whole} bytes long")
        said = self.json("inventory.json") if "inventory.json" in self.sizes else None
        if not isinstance(said, dict):
            raise Unreadable("this is no pack of evidence")
        self.first, self.rows, self.origin = said.get("first_index"), said.get("rows"), said.get("origin")
        self.csv = said.get("csv", 1)
        good = self.csv in (1, 2) and is_integer(self.csv) and said.get("format") == "sallyport-evidence/1" and isinstance(self.origin, str)
        if not good or not all(is_integer(one) and one >= 0 for one in (self.first, self.rows)):
            raise Unreadable("this is a pack of another form")
        if not self.rows:
            raise Unreadable("there is no row in it")
        self.is_whole = self.first == 0 or "state-start.json" in self.sizes
        self.kept = {}
        self.widths = {}
        for name in self.sizes:
            found = re.fullmatch(r"tiles/([0-9]{1,2})/((?:x[0-9]{3}/)*)([0-9]{3})(?:\.p/([0-9]{1,3}))?", name)
            if found:
                place = int(found[1]), int(re.sub("[x/]", "", found[2]) + found[3])
                self.widths[place] = (int(found[4] or 256), name)

    def bytes(self, name, limit=64 << 20):
        if self.sizes[name] > limit:
            raise Unreadable(f"{name} is too large")
        return b"".join(self.blocks(name))

    def blocks(self, name):
        """The bytes of a file, which must be as many as the zip says, with that digest. Raises Unreadable."""
        info, size, crc = self.zip.getinfo(name), 0, 0
        end = end_in_zip(self.raw, info)
        for block in inflated(self.raw, end - info.compress_size, info):
            size, crc = size + len(block), zlib.crc32(block, crc)
            if size > info.file_size:
                break
            yield block
        if (size, crc) != (info.file_size, info.CRC):
            raise Unreadable(f"{name} is not what the zip says")

    def json(self, name):
        """The object that a file is; None where it is none, has too many values, or can be read in two ways."""
        data = self.bytes(name)
        if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
            return None
        value = plain(data)
        return value if isinstance(value, dict) and not ambiguity(data) else None

    def sums(self):
        """What is wrong with SHA256SUMS, or None."""
        if "SHA256SUMS" not in self.sizes:
            return "SHA256SUMS is not in the pack"
        self.digests = listed = {}
        limit = sum(2 * (67 + len(name)) for name in self.sizes) + 65536
        for line in self.bytes("SHA256SUMS", limit).decode("utf-8", "replace").split("\n"):
            digest, _, name = line.partition("  ")
            if line and name in listed:
                return f"{name} is in SHA256SUMS twice"
            if line:
                listed[name] = digest
        odd = sorted(set(self.sizes) - {"SHA256SUMS"} ^ set(listed))
        if odd:
            return f"{odd[0]} is not in SHA256SUMS, or only there"
        for name, digest in listed.items():
            running = hashlib.sha256()
            for block in self.blocks(name):
                running.update(block)
            if running.hexdigest() != digest:
                return f"{name} is not what SHA256SUMS says"
        return None

    def tile(self, level, n, width):
        """At least `width` hashes of a tile. Raises Malformed."""
        wide, name = self.widths.get((level, n), (0, ""))
        if wide < width:
            raise Malformed(f"tile {level}/{n} is not in the pack")
        if name not in self.kept:
            if len(self.kept) > 256:
                self.kept.clear()
            self.kept[name] = self.bytes(name, 256 * 32)
            if len(self.kept[name]) != wide * 32:
                raise Malformed(f"tile {level}/{n} has another width than it says")
        data = self.kept[name]
        return [data[at : at + 32] for at in range(0, len(data), 32)]

    def root(self, size):
        """The root of so many leaves, by the right edge. Raises Malformed."""
        peaks, level, count = [], 0, size
        while count:
            width = count % 256
            if width:
                peaks[:0] = peaks_of(self.tile(level, count // 256, width)[:width])
            level, count = level + 1, count // 256
        return folded(peaks)

    def bound(self, size):
        """Raises Malformed where a tile of the rows does not lead to the tiles above it, up to the edge of a size."""
        if not self.rows:
            return
        level, count = 0, size
        first, last = self.first, self.first + self.rows - 1
        while count:
            first, last = first // 256, last // 256
            for n in range(first, last + 1):
                width = min(256, count - n * 256)
                if width < 256:
                    self.tile(level, n, max(width, 0))
                elif folded_whole(self.tile(level, n, 256)) != self.tile(level + 1, n // 256, n % 256 + 1)[n % 256]:
                    raise Malformed(f"tile {level}/{n} does not lead to the tile above it")
            level, count = level + 1, count // 256


def peaks_of(hashes):
    tree = Tree()
    for one in hashes:
        tree.add(one)
    return [peak for peak, _ in tree.peaks]


def folded_whole(hashes):
    return peaks_of(hashes)[0]


class PackSeals(Seals):
    """Holds the rows of a pack against its tiles, and its checkpoints against those."""

    def __init__(self, pack, trusted):
        super().__init__(trusted)
        self.pack, self.at, self.origin = pack, pack.first, pack.origin
        self.notes, self.compared, self.stamps, self.kept = [], False, {}, 0
        self.tiles = -(-(pack.first + pack.rows) // 256) - pack.first // 256

    def add(self, leaf):
        if self.problems or self.at >= self.pack.first + self.pack.rows:
            return
        try:
            if self.pack.tile(0, self.at // 256, self.at % 256 + 1)[self.at % 256] != leaf_hash(leaf):
                self.problems.append(f"leaf {self.at} is another one in the tiles")
        except Malformed as error:
            self.problems.append(str(error))
        self.at += 1

    def end(self, rows):
        if rows < self.pack.rows:
            return f"there are {rows} rows, but the pack says {self.pack.rows}"
        if rows > self.pack.rows:
            self.problems.append(f"there are {rows} rows, but the pack says {self.pack.rows}")
        stored = []
        names = [name for name in self.pack.sizes if re.fullmatch(r"checkpoints/[0-9]+\.txt", name)]
        try:
            if "key.txt" not in self.pack.sizes:
                raise Malformed("key.txt is not in the pack")
            own = [Key(line) for line in self.pack.bytes("key.txt").decode().split("\n") if line]
            stored = sorted((Note(self.pack.bytes(n).decode()) for n in names), key=lambda note: note.size)
            self.read_stamps({note.size for note in stored})
            if not stored or stored[-1].size < self.pack.first + self.pack.rows:
                raise Malformed("no checkpoint covers the rows")
            self.problems.extend(self.trusted.since_faults(own))
            self.pack.bound(stored[-1].size)
            for note in stored:
                if not note.is_signed(own) and not note.is_signed(self.trusted.keys):
                    self.problems.append(f"the checkpoint of {note.size} rows is not signed by its log")
                self.check(note, self.stamps.get(note.size, []))
            if self.trusted.keys and not stored[-1].is_signed(self.trusted.keys):
                self.problems.append("the newest checkpoint is not signed by the key that was given")
            for note in [note for note in self.trusted.notes if 0 < note.size <= stored[-1].size]:
                self.check_kept(note)
            self.sealed = stored[-1].size
        except (Malformed, UnicodeDecodeError) as error:
            self.problems.append(str(error))
        for key in self.trusted.witnesses:
            if key.name not in self.witnessed:
                self.problems.append(f"no checkpoint is cosigned by the witness {key.name}")
        self.problems.extend(self.trusted.stamps.end())
        self.signed = self.sealed if self.trusted.keys else 0
        beyond = [note.size for note in self.trusted.notes if self.sealed and note.size > self.sealed]
        return f"the pack ends at {self.sealed} rows, but a checkpoint of {beyond[0]} rows was kept" if beyond else None

    def read_stamps(self, sizes):
        """Those of the pack, by the size of their checkpoint. One may have several, by several authorities."""
        for name in sorted(self.pack.sizes):
            found = re.fullmatch(r"anchors/([0-9]+)(?:-[0-9]+)?\.tsr", name)
            if found and int(found[1]) not in sizes:
                raise Malformed(f"there is a time stamp of {found[1]} rows, but no such checkpoint")
            if found:
                self.stamps.setdefault(int(found[1]), []).append(self.pack.bytes(name, 1 << 20))

    def vouched(self):
        return not self.problems and bool(self.signed or self.compared)

    def check_kept(self, note):
        try:
            self.pack.root(note.size)
        except Malformed:
            if note is self.trusted.since:
                self.problems.append(f"the pack has no tiles to show that it goes on from the checkpoint of {note.size} rows")
                return
            self.notes.append(f"not compared: the kept checkpoint of {note.size} rows, of which the pack has no tiles")
            return
        self.compared, self.kept = True, max(self.kept, note.size)
        self.check(note)

    def check(self, note, stamps=()):
        self.problems.extend(self.trusted.stamps.see(note, stamps))
        if note.origin != self.origin:
            self.problems.append(f"the checkpoint of {note.size} rows is of another log: {note.origin}")
        if note.size and self.pack.root(note.size) == note.root:
            self.checkpoints += 1
        else:
            self.problems.append(f"the checkpoint of {note.size} rows has another root than the tiles")
        for key in self.trusted.witnesses:
            at = key.signed(note)
            if at is not False:
                self.witnessed[key.name] = (note.size, at)


CSV = (
    "stream seq recorded_at request_id principal_id principal_type action status tool model provider cert_thumbprint dpop_jkt "
    "detail config_digest version prev_hash row_hash"
).split()
FREQUENT = ("egress_llm_chat", "mcp_tools_call", "mcp_tools_list")


class Tables:
    """Finds out whether the files of a pack that are taken from its rows are what the rows make."""

    def __init__(self, pack, walk):
        self.pack, self.walk = pack, walk
        self.start_is_wrong = True
        before = pack.json("sets-start.json") if "sets-start.json" in pack.sizes else None
        before = before.get("principals") if isinstance(before, dict) else None
        if isinstance(before, list) and all(is_held_set(one) for one in before):
            is_right = not pack.is_whole or before == walk.held()
            walk.sets = {held["principal"]: held for held in before}
            self.start_is_wrong = not is_right or self.text().encode("utf-8") != pack.bytes("sets-start.json")
        csv, lists = ("rows.csv", "refusals.csv"), ("grants.ndjson", "tools.json", "sign-ins.ndjson")
        self.running = {name: hashlib.sha256() for name in csv + lists}
        self.tools = 0
        for name in csv:
            self.running[name].update((",".join(CSV) + "\r\n").encode())

    def see(self, row, line):
        cells = (",".join(cell(row, name, self.pack.csv) for name in CSV) + "\r\n").encode()
        self.running["rows.csv"].update(cells)
        if row["status"] == "denied":
            self.running["refusals.csv"].update(cells)
        action, detail = row["action"], row["detail"]
        if action.startswith("admin.sign") or action == "admin.secret_used":
            self.running["sign-ins.ndjson"].update(line + b"\n")
        if action.startswith("mcp_resource."):
            self.running["tools.json"].update((b",\n" if self.tools else b"[\n") + line)
            self.tools += 1
        if action in FREQUENT:
            return
        if row["status"] == "success" and ("revision" in detail or action.startswith("mcp_binding.")):
            self.running["grants.ndjson"].update(line + b"\n")

    def text(self):
        """The text of a file of the sets, as they are now."""
        sets = [{name: held[name] for name in HELD_SET} for held in self.walk.held()]
        text = json.dumps({"principals": sets}, indent=2, ensure_ascii=False) + "\n"
        return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)

    def findings(self):
        found = ["sets-start.json is not what stood before the rows"] if self.start_is_wrong else []
        self.running["tools.json"].update(b"\n]\n" if self.tools else b"[]\n")
        self.running["sets-end.json"] = hashlib.sha256(self.text().encode("utf-8"))
        if "state-end.json" in self.pack.sizes:
            self.running["state-end.json"] = hashlib.sha256(self.walk.text())
        wrong = [name for name, digest in self.running.items() if self.pack.digests.get(name) != digest.hexdigest()]
        return found + [f"{name} is not what the rows make" for name in wrong]


HELD_SET = {"principal": str, "revision": int, "is_active": bool, "capabilities": list, "row": str}


def is_held_set(one):
    """Whether a value is a set of sets-start.json, with no member more (#evidence)."""
    return (
        isinstance(one, dict)
        and set(one) == set(HELD_SET)
        and all(isinstance(one[name], kind) for name, kind in HELD_SET.items())
        and is_integer(one["revision"])
        and strings(one["capabilities"])
    )


HIDDEN = (  # #evidence
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
FORMULA = '(^|;)(["\u0020\u00a0\u3000]*)(?=[=+\\-@\uff1d\uff0b\uff0d\uff20])'


def escaped(character):
    """As JSON escapes it, by UTF-16 code units."""
    data = character.encode("utf-16-be")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def cell(row, name, form):
    value = row[name]
    if name == "detail":
        value = canonical(value).decode()
    text = "" if value is None else str(value)
    if isinstance(value, str) and form == 2:
        text = re.sub(FORMULA, r"\1\2'", re.sub(HIDDEN, lambda found: escaped(found[0]), text))
    elif isinstance(value, str) and text[:1] and text[0] in "=+-@\t\r":
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if re.search('[",\r\n]', text) else text


# ---- The command ----------------------------------------------------------------------------------------


def lines(file):
    """Each line without its newline. Never holds more than LONGEST_LINE."""
    while True:
        line = file.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            yield None
            return
        yield line[:-1] if line.endswith(b"\n") else line


def verify(file, walk, seals, from_start=True, on_row=None, heads=()):
    """Returns the chain and, where a row is bad, what is wrong with it. Raises Unreadable."""
    chain = Chain(from_start, heads)
    for line in lines(file):
        row = None
        try:
            if line is None:
                raise Bad("is longer than a row can be")
            row = parse(line)
            leaf = chain.take(row)
        except Bad as problem:
            row = row or problem.row
            if chain.rows == 0 and not (isinstance(row, dict) and LEAF | {"row_hash"} <= set(row)):
                raise Unreadable("this is not an export of a ledger") from problem
            stream, seq = chain.expected(row)
            begins = row["seq"] if chain.rows == 0 and is_integer(row.get("seq")) else 1
            return chain, {"stream": stream, "seq": seq, "problem": str(problem), "begins": begins}
        walk.see(row)
        if seals:
            seals.add(leaf)
        if on_row:
            on_row(row, line)
    if chain.rows == 0:
        raise Unreadable("there is no row")
    return chain, None


BEGINS_WITHIN = (
    "it begins in the middle. Every line of an export is a row, so it holds neither the state nor the tree before the first: "
    "if those rows are archived, add --archive and their folder, or verify a pack of evidence, which brings both"
)


def report(chain, bad, walk, seals, options, tables=None):
    """Prints what was found; gives the exit code."""
    judged = options.authority and not bad
    cut = seals.end(chain.rows) if seals and not bad else None
    problems = seals.problems if seals and not bad else []
    if tables and not bad and not problems and not cut:
        chain.findings += tables.findings()
    for note in getattr(seals, "notes", []) if not options.json else []:
        say(note)
    if options.json:
        found = {"ok": not bad, "rows": chain.rows, "streams": len(chain.begun), "open_decisions": walk.under_way()}
        found.update({"first_bad": {name: bad[name] for name in ("stream", "seq", "problem")}} if bad else {})
        found.update({"findings": chain.findings} if chain.findings else {})
        found.update({"authority": walk.found()} if judged else {})
        found.update({"problems": problems} if problems else {})
        found.update({"cut_short": cut} if cut else {})
        say(json.dumps(found))
    elif bad:
        say(f"BAD: row {bad['stream']}:{bad['seq']} {bad['problem']}")
        print_findings(chain)
        if bad.get("begins", 1) > 1 and not tables and not options.archive:
            say(BEGINS_WITHIN)
    else:
        print_findings(chain)
        for problem in problems:
            say(f"BAD: {problem}")
        if cut:
            say(f"CUT SHORT: {cut}")
        said = "rows that follow each other" if chain.findings or problems or cut else "whole"
        say(f"{said}: {chain.rows} rows in {counts(len(chain.begun), 'stream')}")
        if judged:
            say(walk.line())
            for row in walk.problems:
                say(f"DISAGREES: row {row['stream']}:{row['seq']} {row['problem']}")
            if walk.wrong() > len(walk.problems):
                say(f"and {walk.wrong() - len(walk.problems)} more")
    if walk.under_way() and not options.json:
        say(f"{walk.under_way()} allowed decisions have no outcome (yet)")
    code = 2 if bad or chain.findings else 3 if problems else 4 if cut else 5 if judged and walk.wrong() else 0
    if code == 0 and not options.json:
        if seals and seals.sealed:
            fit = counts(seals.checkpoints, "checkpoint") + (f" and {counts(seals.tiles, 'tile')}" if tables else "")
            say(f"{fit} of {seals.origin} fit, up to {seals.sealed} rows")
            if chain.rows > seals.sealed:
                say(f"{chain.rows - seals.sealed} rows are behind the last checkpoint")
        for line in seals.trusted.stamps.lines() if seals else []:
            say(line)
        vouched = bool(seals) and seals.vouched()
        if vouched:
            stamped = seals.trusted.stamps.stamped
            seen = max([seals.kept] + [size for size, _ in seals.witnessed.values()] + [size for _, size, _ in stamped.values()])
            unseen = max(seals.sealed, chain.rows) - seen
            if seen and unseen > 0:
                say(f"the last {counts(unseen, 'row')}: SEEN by nobody outside")
        say(conclusion(vouched, seals.witnessed, seals.trusted.stamps.stamped, seals.kept) if seals else conclusion(False, {}, {}))
    return code


def counts(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def print_findings(chain):
    for finding in chain.findings:
        say(f"BAD: {finding}")


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(9, f"verify: {visible(message)}\n")


def verify_pack(pack, walk, trusted, options):
    """A pack is held against its own tiles; its decisions are recomputed where it begins with the log."""
    odd = pack.sums()
    if odd:
        say(f"BAD: {odd}")
        return 2
    options.authority = pack.is_whole
    if pack.first and pack.is_whole and not walk.take(pack.bytes("state-start.json")):
        say("BAD: state-start.json is no state")
        return 2
    seals, tables = PackSeals(pack, trusted), Tables(pack, walk)
    at = []

    def see(row, line):
        at[:] = (min(at[:1] + [row["recorded_at"]]), max(at[1:] + [row["recorded_at"]]))
        tables.see(row, line)

    if "rows.ndjson" not in pack.sizes:
        raise Unreadable("rows.ndjson is not in the zip")
    with pack.zip.open("rows.ndjson") as file:
        walk.due = states_said(file)
    heads = {stream: tuple(head) for stream, head in walk.heads.items()}
    # The leaf that the state itself says: that of the inventory is compared with the tiles.
    begins = walk.leaf if pack.first and pack.is_whole else 0
    with pack.zip.open("rows.ndjson") as file:
        chain, bad = verify(file, walk, seals, pack.is_whole, see, heads)
    # The row may be among those that are cut off.
    if begins and not bad and chain.rows >= pack.rows and begins not in walk.said:
        chain.findings.append(f"no row says the state before leaf {begins}")
    if not options.json and at:
        say(f"leaves {pack.first} to {pack.first + pack.rows - 1} of {pack.origin}, recorded from {at[0]} to {at[1]}")
    if not pack.is_whole and not options.json:
        say("not proven: decisions, and sets-start.json, which rest on rows in front of the pack")
    return report(chain, bad, walk, seals, options, tables)


SEGMENT = re.compile(r"(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})\.zip")


class Archive:
    """The segments in a folder, verified one after the other (#archive)."""

    def __init__(self, folder, options):
        found = (SEGMENT.fullmatch(name) for name in os.listdir(folder))
        self.files = sorted((int(one[1]), int(one[2]), one[0]) for one in found if one)
        if not self.files:
            raise Unreadable(f"there is no segment in {folder}")
        self.findings, self.codes, self.said, self.digests = list(self.gaps()), [], [], {}
        self.archived, self.end, self.rows, self.conclusion = {}, None, 0, ""
        self.since = Trusted(options).since
        self.skipped = [one for one in self.files if self.since and one[1] + 1 < self.since.size]
        wanted = self.files[len(self.skipped) :]
        self.first = wanted[0][2] if wanted else None
        for first, last, name in wanted:
            try:
                self.see(os.path.join(folder, name), name, first, last, options)
            except (OSError, Unreadable, zipfile.BadZipFile, NotImplementedError) as error:
                self.findings.append(f"{name} cannot be read: {error}")
                self.end = None

    def gaps(self):
        following = self.files[0][0]
        for first, last, name in self.files:
            if first > following:
                yield f"leaves {following} to {first - 1} are in no file"
            if first < following:
                yield f"{name} holds leaves that another file holds too"
            following = max(following, last + 1)

    def see(self, path, name, first, last, options):
        pack, walk, trusted = Pack(path), Walk(), Trusted(options)
        start, end = (pack.bytes(one) if one in pack.sizes else None for one in ("state-start.json", "state-end.json"))
        if (pack.first, pack.rows) != (first, last - first + 1):
            self.findings.append(f"{name} holds leaves {pack.first} to {pack.first + pack.rows - 1}, and not those of its name")
        elif self.end and start and self.end != start:
            self.findings.append(f"{name} does not begin with the state that the segment before it leaves")
        self.end = end
        trusted.since = trusted.since if name == self.first else None
        trusted.notes = [note for note in trusted.notes if note is trusted.since or first < note.size <= last + 1]
        with io.StringIO() as out, contextlib.redirect_stdout(out):
            code = verify_pack(pack, walk, trusted, argparse.Namespace(**{**vars(options), "json": False}))
            lines_of = out.getvalue().splitlines()
        self.codes.append(code)
        self.said += [f"{name}: {line}" for line in lines_of] if code else []
        self.conclusion = lines_of[-1] if lines_of else ""
        self.rows += walk.leaf - (pack.first if pack.first and pack.is_whole else 0)
        self.archived.update(walk.archived)
        with open(path, "rb") as file:
            self.digests[name] = file_digest(file)

    def report(self, later=None):
        """Prints what was found; gives the exit code. `later`: what rows behind the segments say of them."""
        self.archived.update(later or {})
        unread = {name for _, _, name in self.skipped}
        for name, (digest, row) in self.archived.items():
            if name in unread:
                continue
            if name not in self.digests:
                self.findings.append(f"{name}, which row {row} archived, is not there")
            elif self.digests[name] != digest:
                self.findings.append(f"{name} is another file than row {row} archived")
        for finding in self.findings:
            say(f"BAD: {finding}")
        cut = not self.first and later is None
        if cut:
            say(f"CUT SHORT: the folder ends with leaf {self.files[-1][1]}, but a checkpoint of {self.since.size} rows was kept")
        for line in self.said:
            say(line)
        say(f"{counts(len(self.files), 'segment')}: leaves {self.files[0][0]} to {self.files[-1][1]}, {self.rows} rows")
        if self.skipped:
            under = sum(last + 1 - first for first, last, _ in self.skipped)
            say(f"not read: {under} rows in {counts(len(self.skipped), 'segment')}, which are under the kept checkpoint")
        return worst([2 if self.findings else 0, 4 if cut else 0, *self.codes])


def file_digest(file):
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(1 << 20), b""):
        digest.update(block)
    return digest.hexdigest()


def worst(codes):
    return next((code for code in (2, 3, 4, 5) if code in codes), 0)


def verify_archive(options, trusted):
    """Verifies the segments of a folder, and the rows behind them if they are there."""
    alone = os.path.isdir(options.file)
    archive = Archive(options.file if alone else options.archive, options)
    if alone:
        code = archive.report()
        if code == 0:
            say(archive.conclusion)
        return code
    if not archive.first:
        raise Unreadable(NO_TILES)
    walk = Walk()
    with open(options.file, "rb") as file:
        walk.due = states_said(file)
        file.seek(0)
        first = next((parse(line) for line in lines(file) if line is not None), {})
        goes_on = isinstance(first, dict) and is_integer(first.get("seq")) and first["seq"] > 1 and archive.end
        if goes_on:
            walk.take(archive.end)
        from_leaf = walk.leaf
        heads = {stream: tuple(head) for stream, head in walk.heads.items()}
        file.seek(0)
        seals = Seals(trusted) if trusted.anything() and not goes_on else None
        chain, bad = verify(file, walk, seals, heads=heads)
    if goes_on and not bad and from_leaf not in walk.said:
        chain.findings.append(f"no row says the state before leaf {from_leaf}")
    options.authority = options.authority or bool(goes_on)
    code = archive.report(walk.archived)
    return worst([code, report(chain, bad, walk, seals, options)])


NO_TILES = "an export has no tiles: what is before the checkpoint must be read. Give it by --checkpoint"


def is_zip(file):
    with open(file, "rb") as opened:
        return opened.read(3) in (b"PK\3", b"PK\5")


def main():
    sys.stdout.reconfigure(errors="backslashreplace")
    arguments = Arguments(prog="verify.py", description="Verifies an export of a Sallyport audit ledger.")
    arguments.epilog = (
        "Exit code: 0 whole; 9 not an export, or not readable; 2 a row was changed, is missing or is there twice, a "
        "stream lacks its beginning, or the body is another; 3 a checkpoint, a signature, a time stamp or a proof does not fit; "
        "4 rows "
        "are missing at the end; 5 a decision does not follow from the rows before it."
    )
    arguments.add_argument("file", metavar="FILE", help="an NDJSON export (- reads standard input), a pack of evidence, a folder of segments, or a receipt")
    arguments.add_argument("--authority", action="store_true", help="recompute every decision")
    arguments.add_argument("--json", action="store_true", help="print what was found as one JSON object")
    for name, about in (("key", "a verifier key of the log, or a file of them"), ("witness", "the same of a witness")):
        arguments.add_argument(f"--{name}", metavar="VKEY|FILE", action="append", default=[], help=about)
    arguments.add_argument("--checkpoint", metavar="FILE", action="append", default=[], help="checkpoints kept elsewhere")
    arguments.add_argument("--since", metavar="FILE", help="a checkpoint that you keep: verify only what came behind it")
    arguments.add_argument("--tsa", metavar="FILE", action="append", default=[], help="CA certificates (PEM) of a time-stamping authority")
    arguments.add_argument("--timestamp", metavar="FILE", action="append", default=[], help="a time stamp (.tsr) of a checkpoint that is here")
    arguments.add_argument("--archive", metavar="DIR", help="a folder of segments that are before the rows of an export")
    arguments.add_argument("--body", metavar="FILE", help="the body that a receipt must be about")
    options = arguments.parse_args()
    try:
        trusted = Trusted(options)
        receipt = None if options.file == "-" or os.path.isdir(options.file) else receipt_in(options.file)
        body = None
        if options.body is not None:
            with open(options.body, "rb") as file:
                body = file.read()
    except (OSError, ValueError, Malformed) as error:
        say(f"verify: {error}", sys.stderr)
        return 9
    if receipt:
        if options.since:
            say("verify: --since is for rows, and this is a receipt", sys.stderr)
            return 9
        try:
            verify_receipt(receipt, trusted, body)
        except Wrong as wrong:
            say(f"BAD: {wrong}")
            return wrong.code
        return 0
    walk, seals = Walk(), Seals(trusted) if trusted.anything() else None
    try:
        if options.archive or os.path.isdir(options.file):
            return verify_archive(options, trusted)
        if options.file != "-" and is_zip(options.file):
            return verify_pack(Pack(options.file), walk, trusted, options)
        if options.since:
            raise Unreadable(NO_TILES)
        if options.file == "-":
            chain, bad = verify(sys.stdin.buffer, walk, seals)
        else:
            with open(options.file, "rb") as file:
                walk.due = states_said(file) if options.authority else set()
                file.seek(0)
                chain, bad = verify(file, walk, seals)
    except (OSError, Unreadable, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        say(f"verify: {error or 'it does not fit into memory'}", sys.stderr)
        return 9
    return report(chain, bad, walk, seals, options)


if __name__ == "__main__":
    sys.exit(main())
