#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
"""walsh_research: fetch the web politely, and prove it.

The conformant bot of the Walsh-Research Bot Compliance Specification v1.3 in one file: standard library only, CPython 3.9 to 3.14.

    import walsh_research
    result = walsh_research.fetch("https://example.org/")       # blocklist, address, robots.txt, pace, then one request
    result.outcome, result.reason, result.links                 # never an exception for policy, network or server trouble
    walsh_research.may_fetch("https://example.org/private")     # a Decision: true or false, which gate, which rule, which line
    for result in walsh_research.run(urls): ...                 # many hosts, each at its own pace, strictly serial

    python walsh_research.py URL...                 python walsh_research.py --selftest --offline

Where each requirement lives, and the prefix of its tests:

    R1  User-Agent, one door      12 EXCHANGE, Bot._exchange              test_R1_
    R2  robots.txt, a b c d       5 ROBOTS, 9 FRESHNESS, Bot._robots_gate test_R2_ test_R2a_ test_R2b_ test_R2c_ test_R2d_
    R3  blocklist, a b c          7 BLOCKLIST, Bot._blocklist_gate        test_R3_ test_R3a_ test_R3b_ test_R3c_
    R4  serial, spacing           8 PACING, Bot._throttle_gate            test_R4_
    R5  back-off, Retry-After     3 TIME, 8 PACING, Bot._retries          test_R5_
    R6  scope                     10 READINGS, 12 EXCHANGE, 14 DOOR       test_R6_
    R7  conditional, canonical    4 ADDRESSES, 9 FRESHNESS, Bot.run       test_R7_
    R8  frequency                 Bot._target                             test_R8_
    R9  structured formats        10 READINGS, Bot.discover               test_R9_
    R10 schema of the blocklist   6 SCHEMA, Bot._standalone_schema        test_R10_
    R11 persistent caches         13 SHELF                                test_R11_
    R12 stale blocks on refresh   9 FRESHNESS, Bot._errand                test_R12_
    R13 tags                      12 EXCHANGE, Bot._exchange              test_R13_
    7   the order of the gates    TARGET_GATES                            test_gates_
    12 to 16  vectors, fixtures, attestation, canaries                    16 PROOF

`grep -n '^# ===' walsh_research.py` is the contents page. A room uses only rooms above it; above the waterline nothing reads a clock, rolls dice,
opens a file or a socket, reads the environment or prints. What you may edit in a copy of your own: the numbers of
section 1b marked "ours", within the clause that each one serves. Those of 1a are the specification's.
"""
from __future__ import annotations

import _thread
import collections
import errno
import heapq
import io
import itertools
import math
import operator
import os
import stat
import sys
import time
from bisect import bisect_right
from contextlib import suppress
from enum import Enum
from functools import cache, lru_cache
from itertools import islice

TYPE_CHECKING = False       # what stands under it is for type checkers; `typing` would cost each start three milliseconds
if TYPE_CHECKING:
    import re
    import socket
    import ssl
    from collections.abc import (
        Callable,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from datetime import datetime
    from typing import Any, AnyStr, ClassVar, Self, TypeVar, dataclass_transform

    @dataclass_transform(frozen_default=True)
    class NamedTuple(tuple[Any, ...]):
        _fields: ClassVar[tuple[str, ...]]
        def to_dict(self) -> dict[str, Any]: ...        # JSON-ready
        def _asdict(self) -> dict[str, Any]: ...
        def _replace(self, **changes: Any) -> Self: ...

    Record = TypeVar("Record", bound=NamedTuple)


# === 1. CONSTANTS   spec 6 ================================================
# 1a. The specification's own names and values.
USER_AGENT = "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"      # R1, exact
UA_TOKEN = "Walsh-Research"     # R1, R2: matched case-insensitively
ROBOTS_TTL_SECONDS = 86400      # R2: 24 h
BLOCKLIST_REFRESH = "PT6H"      # R3: where the document names no refresh of its own
SCHEMA_TTL_SECONDS = 604800     # R10: 7 days
MIN_REQUEST_INTERVAL = 1.0      # R4: seconds, per host
DEFAULT_MAX_RETRIES = 5         # R5
DEFAULT_BACKOFF_BASE = 1.0      # R5: seconds
BACKOFF_CAP = 60                # R5: seconds
STALE_HARD_CUTOFF = 2           # R12: times the TTL; unused, since a stale entry blocks on refresh
SPEC_VERSION = "walsh-research-compliance/v1.3"
BLOCKLIST_CONTRACT = "walsh-research-blocklist/v1"
ORIGIN = "https://wal.sh"       # publishes the canonical resources of spec 5
__version__ = "1.0.0"
__all__ = [
    "BACKOFF_CAP", "BLOCKLIST_REFRESH", "DEFAULT_BACKOFF_BASE", "DEFAULT_MAX_RETRIES", "MIN_REQUEST_INTERVAL", "ORIGIN",
    "ROBOTS_TTL_SECONDS", "SCHEMA_TTL_SECONDS", "SPEC_VERSION", "STALE_HARD_CUTOFF", "UA_TOKEN", "USER_AGENT", "Blocklist",
    "BlocklistRejected", "Bot", "Decision", "Feed", "FeedItem", "Link", "LlmsTxt", "PageMetadata", "Request", "Response", "Result",
    "Robots2", "RobotsTxt", "Rule", "Sandbox", "SchemaViolation", "Sitemap", "Source", "TransportError", "UnsupportedSchema", "Verdict",
    "attest", "backoff_delay", "canonical_url", "discover", "fetch", "host_key", "main", "markdown_links", "may_fetch", "page_metadata",
    "parse_duration", "parse_feed", "parse_llms_txt", "parse_retry_after", "parse_sitemap", "run", "tag_url", "validate",
]

# 1b. Our own numbers, each with its unit and its reason.
MAX_ROBOTS_BYTES = 500 * 1024           # spec 9.1.1, RFC 9309 2.5: what is read of a robots.txt
MAX_URL_LENGTH = 64 * 1024              # ours: characters; longer is refused
MAX_RETRY_AFTER_SECONDS = 10 * 365 * 86400  # ours: seconds; ten years say "never", and no arithmetic overflows
MAX_HOST_CHARACTERS = 1024              # ours: characters of a host before decoding; DNS allows 253 after it, and IDNA is quadratic
MAX_SHOWN_CHARACTERS = 300              # ours: characters of foreign text on one line of a terminal or a log
# robots.txt.
MAX_SITEMAPS = 1000                     # ours: Sitemap lines kept of one robots.txt; sites list a handful
MAX_SITEMAP_URL_LENGTH = 2048           # ours: characters; what sitemaps.org allows a location
MAX_WILDCARD_OCTETS = 2 ** 26           # ours: octets of a URL times its wildcard rules, a second at worst; beyond it a Disallow holds
# JSON, schemas, the blocklist.
MAX_JSON_DEPTH = 200                    # ours: levels; no document of the spec has ten, and C recursion ends near a thousand
MAX_JSON_DIGITS = 4300                  # ours: digits of one integer; CPython 3.11's own limit, since conversion is quadratic
MAX_PATTERN_STEPS = 50_000              # ours: work spent on proving a schema's pattern harmless
MAX_PATTERN_WORK = 2**20                # ours: steps of a pattern that backtracks by a power of the length; that bounds the length
MIN_BLOCKLIST_REFRESH_SECONDS = 300     # ours: five minutes; faster would hammer the origin
MAX_BLOCKLIST_REFRESH_SECONDS = 604800  # ours: seven days; slower would lose opt-outs
MAX_BLOCKLIST_KEY = 1024                # ours: characters; DNS ends at 253, so no opt-out is lost
MAX_BLOCKLIST_WARNINGS = 20             # ours: lines told about one document
MAX_SUBSCHEMAS = 2_000                  # ours: each is compiled to functions; a published schema has a few hundred
MAX_PATTERN_LENGTH = 500                # ours: characters of a schema's pattern
# Readings.
MAX_MARKDOWN_NESTING = 32               # ours: open quotes and list items; a deeper mark is text
MAX_DESTINATION_PARENTHESES = 8         # ours: CommonMark asks for three
MAX_LINK_TEXT_TOKENS = 4096             # ours: marks that one link's text may span; bounds what an unclosed bracket keeps
MAX_TAG_CHARS = 2048                    # ours: one tag in Markdown; longer is text
MAX_HEAD_CHARS = 512 * 1024             # ours: of a page, where its <head> must have ended
MAX_HEAD_VALUE_CHARS = 4096             # ours: one title, description or URL of a page's head
MAX_HEAD_LISTED = 100                   # ours: feeds, or robots directives, of one page
MAX_XML_DEPTH = 256             # ours: open elements; a feed has six, and expat keeps some 100 bytes for each
MAX_XML_NAMES = 4096            # ours: different element and attribute names of one document; a feed has dozens
MAX_XML_TOKEN_BYTES = 256 * 1024        # ours: one tag or comment; expat holds it whole, its attributes many times over
XML_PIECE_BYTES = 64 * 1024     # ours: handed to expat at a time; the bounds are checked in between
MAX_BASE_LENGTH = 2048          # ours: characters; each relative link of a document repeats its base
MAX_JSON_FEED_BYTES = 1536 * 1024       # ours: JSON is parsed whole, and a hostile byte of it takes up to 45 of memory (tiny objects)
MAX_LISTED_ENTRIES = 50_000     # sitemaps.org: of one sitemap; a feed has hundreds
MAX_SITEMAP_BYTES = 50 * 2**20  # sitemaps.org: of one sitemap, uncompressed
MAX_SITEMAP_TAGS = 2_000_000    # ours: 50,000 entries of 20 elements each; 50 MiB of "<a/>" are 13 million
MAX_SITEMAP_TEXT = 12 * 2**20   # ours: characters of all URLs kept of one sitemap; 50,000 of 250
MAX_GZIP_MEMBERS = 1024         # ours: a block-wise gzip of 50 MiB has 800
GZIP_PIECE_BYTES = 16 * 1024    # ours: small, since each member copies what is left of the piece
MAX_DATE_LENGTH = 80            # ours: characters; no date of a feed is longer
MAX_FEED_TEXT = 4096            # ours: characters of one title, id or link; nothing that a person reads is longer
# robots2.txt.
ROBOTS2_AGENT = "Walsh-Research/1.2"            # ours: name/version as in USER_AGENT, for X-Agent-Identity and the ask protocol
ROBOTS2_CATEGORY = "ai-researcher"              # robots2: our agent category unless told otherwise
ROBOTS2_ASK_PATH = "/.well-known/robots2-ask"   # robots2, the ask protocol
ROBOTS2_ASK_TTL_SECONDS = 86400                 # robots2: an "allow" is cached for no more than 24 hours
ROBOTS2_MAX_CHAIN = 3                           # robots2: chained files beyond the site's own
ROBOTS2_MAX_UNKNOWN = 1000                      # ours: lines kept to be shown; a file of nothing else would cost 40 MB
# The shelf.
SHELF_FORMAT = "walsh-research-cache/1"     # ours: what an entry says of itself
MAX_REMEMBERED_ROBOTS_BYTES = 64 * 2**20    # ours: without a disk; a hostile domain has any number of hosts
MAX_ENTRY_BYTES = 256 * 2**20           # ours: a blocklist of 10^6 domains is legitimate
MAX_PICKLE_OPCODES = 10_000             # ours: an entry is a small dict around a body; more could cost seconds (ints that collide) or memory
# ours: unused entries go away, by kind; the blocklist never does (R3b), a source outlives a yearly run
ENTRY_LIFETIME_SECONDS = {"blocklist": float("inf"), "source": 400 * 86400.0, "": 60 * 86400.0}
SWEEP_INTERVAL_SECONDS = 86400.0        # ours: a day between two whole passes over the cache folder
MAX_SWEEP_FILES = 4096                  # ours: looked at in one call between two passes; a few milliseconds
# The door.
MAX_HEAD_BYTES = 256 * 1024             # ours: status line and headers of one exchange, 1xx answers included; also what chunking may add for nothing
MAX_HEADER_LINES = 500                  # ours: real answers have some 30; a line costs more than its bytes
MAX_INTERIM_ANSWERS = 20                # ours: 1xx answers that are skipped before the real one
MAX_CONTENT_CODINGS = 3                 # ours: stacked encodings; each multiplies what a bomb can do
MAX_ADDRESSES_TRIED = 8                 # ours: all are checked, so many are tried
PIECE_BYTES = 16 * 1024                 # ours: what is read, or decoded, at a time
PIN_SECONDS = 60.0                      # ours: how long a checked address is held for the request that follows
MAX_PINS = 256                          # ours: hosts held that way; the oldest goes first
LONGEST_DEADLINE_SECONDS = 86400.0      # ours: a longer or endless timeout overflows select() on some platforms
# The bot and the desk.
MAX_REDIRECTS = 10                      # ours: the spec is silent (19, C6); browsers stop at 20
MAX_ROBOTS_REDIRECTS = 5                # RFC 9309 2.3.1.2
MAX_BLOCKLIST_BYTES = 128 * 2**20       # ours: a list of 10^6 domains is legitimate
MAX_SCHEMA_BYTES = 2**20                # ours
MAX_CHAINED_BYTES = 128 * 1024          # ours: of a robots2.txt that another chains to; four must fit an entry of the cache
MAX_READ_BYTES = 4 * 2**20              # ours: of a Markdown body, for its links
MAX_VALIDATOR_LENGTH = 1024             # ours: characters of an ETag or Last-Modified that is kept
MAX_ROBOTS_IN_MEMORY_BYTES = 8 * 2**20  # ours: the rest is on the shelf
MAX_SLEEP_SECONDS = 86400.0             # ours: time.sleep overflows for centuries
LEAST_SLEEP_SECONDS = 0.001             # ours: a shorter one may not move a coarse clock at all
MAX_PACERS = 32                         # ours: clocks of simulations that are remembered
MAX_WARNINGS = 1000                     # ours: lines about a run
PACE_MARGIN_SECONDS = 0.005             # ours: added to every interval, so that a server's own clock never logs less; a clock may ask for more
SLOT_TOLERANCE_SECONDS = 0.002          # ours: how late a request may leave without being written down again; a part of the margin
LOCK_POLL_SECONDS = 0.05                # ours: between two looks at a lock that another process holds
MAX_CLAIM_SECONDS = 86400.0             # ours: a start further in the future was written by a clock that jumped
MAX_HOLD_SECONDS = 30 * 86400.0         # ours: a "not before" further away is not believed
HOLD_AFTER_LAST_RETRY_SECONDS = 3600.0  # spec 7, the back-off diagram: "wait 1h"
POLICY_RETRY_SECONDS = 300.0            # ours: before a policy document that could not be had is asked for again
LEAST_FAILURES_FOR_GOOD = 3             # ours: attempts in vain, besides
MAX_UNREACHABLE_SECONDS = 30 * 86400.0  # RFC 9309 2.3.1.4
STATUS_TICK_SECONDS = 0.5               # ours: between two looks of the status line at the clock
PACE_TIMES = ("last_at", "policy_at", "departed_at", "not_before")
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
BACKOFF_STATUSES = (429, 503)           # R5
CANONICAL_KINDS = ("blocklist", "schema")
BLOCKLIST_PATH = "/.well-known/walsh-research/blocklist.json"           # spec 5
SCHEMA_PATH = "/.well-known/walsh-research/blocklist.schema.json"
FIXTURES_PATH = "/.well-known/walsh-research/test-fixtures.json"
CANARY_PATH = "/research/bots/dogfood-"                                 # spec 16
DEFAULT_FIXTURES = {                    # spec 13, where the index cannot be had
    "robots_allowed_sentinel": ORIGIN + CANARY_PATH + "allow", "robots_disallowed": ORIGIN + CANARY_PATH + "disallow",
    "walsh_only_allowed": ORIGIN + CANARY_PATH + "walsh-only", "external_positive": "https://pypi.org/project/jsonschema/",
    "operator_blocked_host": "example.com"}
TOOL_NAME = "walsh_research"
PLATFORM_CACHE = "<the platform's>"     # cache folder, which None is not


class Lazy:
    """A stand-in for what takes long to make, and is made when something of it is first asked for."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __getattr__(self, name: str) -> Any:        # only for what is not there yet
        value = getattr(self.make(), name)
        setattr(self, name, value)
        return value


def lazy_re(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """re.compile, put off: a run needs few expressions, and compiling them all takes longer than a run."""
    pattern: Any = Lazy(lambda: re.compile(source, flags))
    return pattern  # type: ignore[no-any-return]


def regular_expressions() -> Any:
    """The module, from then on in place of its stand-in; it takes as long to import as half of this file."""
    global re
    import re
    return re


if not TYPE_CHECKING:
    re = Lazy(regular_expressions)


# === 2. NOUNS =============================================================
# The value tuples that come back, and the exceptions.

def as_json(value: Any) -> Any:
    """Plain data for a value tuple or what it holds."""
    if hasattr(value, "_fields"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value.value if isinstance(value, Enum) else value


if not TYPE_CHECKING:
    class RecordType(type):
        """typing.NamedTuple, less its compiling of every annotation: that was a fifth of the time to import this file."""

        def __new__(cls, name, bases, body):
            fields = body["__annotations__"]
            defaults = [body.pop(field) for field in fields if field in body]
            return type(name, (collections.namedtuple(name, fields, defaults=defaults),), {"__slots__": (), "to_dict": as_json, **body})

    NamedTuple = type.__new__(RecordType, "NamedTuple", (), {})


RECOMMENDATIONS = {     # the rows of the WebCanon policy model
    "allowed_explicit": "recommended",
    "allowed_implicit": "recommended",
    "disallowed_explicit": "not_recommended",
    "unknown_unreachable": "unknown_do_not_fetch_by_default",
    "unknown_parse_error": "allowed_but_warn",
    "skipped_by_user_policy": "recommended",
}


class Verdict(str, Enum):
    """What robots.txt says of a URL, in the words of the WebCanon policy model.

    >>> Verdict.UNKNOWN_PARSE_ERROR.recommendation
    'allowed_but_warn'
    """

    ALLOWED_EXPLICIT = "allowed_explicit"
    ALLOWED_IMPLICIT = "allowed_implicit"
    DISALLOWED_EXPLICIT = "disallowed_explicit"
    UNKNOWN_UNREACHABLE = "unknown_unreachable"
    UNKNOWN_PARSE_ERROR = "unknown_parse_error"
    SKIPPED_BY_USER_POLICY = "skipped_by_user_policy"

    def __str__(self) -> str:       # 3.12 changed what an f-string makes of a str enum
        return str(self.value)

    @property
    def recommendation(self) -> str:
        return RECOMMENDATIONS[self.value]


class Rule(NamedTuple):
    """One Allow or Disallow line of the selected group."""

    allow: bool
    value: str                  # as the file writes it
    line: int                   # 1-based


class Link(NamedTuple):
    """A link: `title` is plain text, `url` absolute."""

    title: str
    url: str


class FeedItem(NamedTuple):
    """An item of a feed: metadata only. `published` is ISO 8601 with zone, or None."""

    title: str
    url: str
    id: str
    published: str | None    # ISO 8601 with zone, or None


class Feed(NamedTuple):
    """A feed: `kind` is "rss", "atom" or "json"; `warning` says where the document broke, if it did."""

    kind: str                   # "rss", "atom" or "json"
    title: str
    url: str                    # the site the feed speaks for (absolute), or ""
    items: list[FeedItem]
    warning: str = ""           # where the document broke, if it did


class SitemapEntry(NamedTuple):
    """An entry of a sitemap; `lastmod` as the sitemap writes it, or None."""

    url: str
    lastmod: str | None      # as the sitemap writes it


class Sitemap(NamedTuple):
    """A sitemap: `kind` is "urlset", "index" or "text"."""

    kind: str                   # "urlset", "index" or "text"
    entries: list[SitemapEntry]
    warning: str = ""


class LlmsLink(NamedTuple):
    """A link of an llms.txt, with its section ("" outside of all) and its note."""

    section: str
    title: str
    url: str
    note: str


class LlmsTxt(NamedTuple):
    """An llms.txt: `links` is [LlmsLink(section, title, url, note)]. A hint, never policy."""

    title: str
    summary: str
    links: list[LlmsLink]


class PageMetadata(NamedTuple):
    """What a page's <head> says: `robots` are lower-case directives, `feeds` the alternates that it advertises."""

    title: str = ""
    description: str = ""
    canonical: str = ""
    language: str = ""
    robots: tuple[str, ...] = ()        # directives of <meta name=robots> and <meta name=walsh-research>, lower-case
    feeds: tuple[Link, ...] = ()        # rel=alternate feeds that the head advertises


class Robots2Line(NamedTuple):
    """A line of a robots2.txt that is shown and grants nothing: an unknown directive, value or block, or a `chain` that is not last."""

    line: int                   # 1-based
    name: str                   # lower-case
    value: str


class Robots2Ruling(NamedTuple):
    """What the robots2 gate says of a target: "ask" names in `ask` what the site wants to be asked for first."""

    decision: str               # "allowed", "denied" or "ask"
    reason: str = ""
    ask: tuple[str, ...] = ()
    rule: Rule | None = None     # where a path rule denied


class AskAnswer(NamedTuple):
    """What a site answered when asked (robots2, the ask protocol)."""

    decision: str               # "allow", "allow-once", "deny" or "later"
    scopes: tuple[str, ...] = ()    # none: the whole site
    reason: str = ""
    cacheable: bool = False     # an allow, or a no that the site itself said; never an allow-once, never mere trouble


class Request(NamedTuple):
    """What the door is handed: one exchange, never a redirect or a retry of its own."""

    method: str                 # "GET" or "HEAD"
    url: str                    # wire form: ASCII, no fragment, no credentials
    headers: dict[str, str]
    timeout: float              # seconds for the whole exchange
    max_bytes: int              # decoded; what lies beyond is cut off, and Response.truncated says so
    wants: Callable[[int, list[tuple[str, str]]], bool] | None = None   # asked (status, headers) before the body; False leaves it unread
    departed: Callable[[], None] | None = None   # called once when the last byte of the request has left (R4 counts from there)


class Response(NamedTuple):
    status: int
    headers: list[tuple[str, str]]      # (lower-case name, value), in order
    body: bytes                         # content-decoded
    truncated: bool = False


class TransportError(Exception):
    """No HTTP answer. `reason` is one line; `final` is true where a retry is pointless; `refused` where the address check refused."""

    def __init__(self, reason: str, final: bool = False, refused: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.final, self.refused = reason, final, refused


class SchemaViolation(ValueError):
    """The instance does not hold: `pointer` is its JSON Pointer, `keyword` the assertion that failed."""

    def __init__(self, pointer: str, keyword: str, detail: str) -> None:
        super().__init__(f"{pointer or '/'}: {keyword}: {detail}")
        self.pointer, self.keyword = pointer, keyword


class UnsupportedSchema(ValueError):
    """The schema asserts something that the validator does not implement."""


class BlocklistRejected(ValueError):
    """The document must not be adopted (R3c, R10)."""


# === 3. TIME   R5   spec 12.5, 12.6 ========================================
# Owns what a duration and a date mean. The expressions that a run may never need stay text, and `re` compiles them when they are first used.
UNIT_COUNT = r"([0-9]{1,15}(?:[.,][0-9]{1,15})?)"   # fifteen digits: exact as a float, finite times any unit
LAST_FRACTION = "(?!.*[.,][0-9]+[A-Za-z].)"     # no unit follows one that has a fraction
# Groups in the order of weeks, days, hours, minutes, seconds.
ISO_DURATION = (rf"{LAST_FRACTION}P(?=[0-9T])(?:{UNIT_COUNT}W|(?:{UNIT_COUNT}D)?"
                rf"(?:T(?=[0-9])(?:{UNIT_COUNT}H)?(?:{UNIT_COUNT}M)?(?:{UNIT_COUNT}S)?)?)")
SHORT_DURATION = (rf"{LAST_FRACTION}(?=[0-9])(?:{UNIT_COUNT}w)?(?:{UNIT_COUNT}d)?(?:{UNIT_COUNT}h)?(?:{UNIT_COUNT}m)?"
                  rf"(?:{UNIT_COUNT}s)?")
PLAIN_SECONDS = "()()()()" + UNIT_COUNT

WEEKDAY, CLOCK_TIME = "(?:mon|tue|wed|thu|fri|sat|sun)", "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
HTTP_DATE_FORMS = (         # RFC 9110 5.6.7
    rf"{WEEKDAY}, (?P<day>[0-9]{{2}}) (?P<month>[a-z]{{3}}) (?P<year>[0-9]{{4}}) {CLOCK_TIME} GMT",                         # IMF-fixdate
    rf"{WEEKDAY}(?:s|nes|rs|ur)?day, (?P<day>[0-9]{{2}})-(?P<month>[a-z]{{3}})-(?P<year>[0-9]{{2}}) {CLOCK_TIME} GMT",      # RFC 850
    rf"{WEEKDAY} (?P<month>[a-z]{{3}}) (?P<day>[ 0-9][0-9]) {CLOCK_TIME} (?P<year>[0-9]{{4}})",                             # asctime
)
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799      # the years 1 and 9999, all that ISO 8601 writes in four digits


def utc_moment(unix_seconds: float) -> datetime:
    """The whole second in UTC, kept within the years 1 to 9999; NaN counts as the first second."""
    from datetime import datetime, timedelta  # a decision needs no calendar

    return datetime(1970, 1, 1) + timedelta(0, max(FIRST_SECOND, min(unix_seconds, LAST_SECOND)) // 1)


def iso_utc(unix_seconds: float) -> str:
    """The instant as ISO 8601 in UTC, whole seconds; "" for NaN. Never raises.

    >>> iso_utc(1779494400.9)
    '2026-05-23T00:00:00Z'
    """
    return "" if math.isnan(unix_seconds) else f"{utc_moment(unix_seconds).isoformat()}Z"


def duration_seconds(text: str, forms: Sequence[str], wanted: str) -> float:
    for form in forms:
        if found := re.fullmatch(form, text):
            return sum(float(number.replace(",", ".")) * unit for number, unit in zip(found.groups(), (604800, 86400, 3600, 60, 1)) if number)
    raise ValueError(f"duration is {text[:80]!r}, want {wanted}")


def parse_duration(text: str) -> float:
    """Seconds of an ISO 8601 duration, `PnW` or `PnDTnHnMnS`; only the last number may have a fraction (spec 9.2, 12.6).

    Calendar years and months have no length, so they are a ValueError, as is everything else.
    >>> parse_duration("PT1H30M")
    5400.0
    """
    return duration_seconds(text, [ISO_DURATION], "ISO 8601 such as PT6H, P1D or PT1H30M, without years and months")


def parse_wait(text: str) -> float:
    """Seconds of a duration as people type it: `90`, `1.5`, `30s`, `5m`, `1h30m`, `1d`, or ISO 8601. ValueError otherwise.

    >>> parse_wait("1h30m"), parse_wait("90"), parse_wait("PT5M")
    (5400.0, 90.0, 300.0)
    """
    return duration_seconds(text, [PLAIN_SECONDS, SHORT_DURATION, ISO_DURATION], "seconds (90), units (30s, 5m, 1h30m, 1d) or ISO 8601 (PT5M)")


def parse_http_date(value: str, now: float) -> float | None:
    """Unix seconds of an HTTP-date in any of its three forms, whatever weekday it names (the spec's own vectors misname it).

    `now` places a two-digit year: RFC 9110 5.6.7 puts what would be more than 50 years ahead into the past. Never raises.
    >>> parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT", now=1779494400)
    784111777.0
    """
    match = next(filter(None, (re.fullmatch(form, value, re.ASCII | re.IGNORECASE) for form in HTTP_DATE_FORMS)), None)
    if match is None or match["month"].lower() not in MONTH_NAMES:
        return None
    year, day, hour, minute, second = (int(match[name]) for name in ("year", "day", "hour", "minute", "second"))
    month = MONTH_NAMES.index(match["month"].lower()) + 1
    if len(match["year"]) == 2:
        present = utc_moment(max(0.0, min(now, 1e11)))      # no clock is believed that says less than 1970, or more than 5138
        year += (present.year + 50) // 100 * 100
        if (year - 50, month, day, hour, minute, second) > present.timetuple():
            year -= 100
    epoch = utc_moment(0.0)
    try:
        return (epoch.replace(year, month, day, hour, minute) - epoch).total_seconds() + second if second <= 60 else None   # 60: a leap second
    except ValueError:
        return None


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds that Retry-After asks for from `now` (Unix seconds), 0.0 for a date that has passed; None where it is neither form.

    R5, RFC 9110 10.2.3. Never raises; a wait is cut at MAX_RETRY_AFTER_SECONDS.
    >>> parse_retry_after("120", now=0), parse_retry_after("soon", now=0)
    (120.0, None)
    """
    if not isinstance(value, str) or not value.isascii():       # int() would read Arabic digits
        return None
    value = value.strip(" \t")
    if value.isdigit():
        seconds = float(value)
    elif (instant := parse_http_date(value, now)) is None:
        return None
    else:
        seconds = instant - now
    return max(0.0, min(seconds, float(MAX_RETRY_AFTER_SECONDS)))


# === 4. ADDRESSES   R7   spec 10.2, 12.4 ===================================
# Owns what a URL, a host and an IP address are: three spellings of a URL (key, throttle, wire), and which addresses are public.
DEFAULT_PORTS = {"http": 80, "https": 443}
URL_SPLIT = lazy_re(r"(?s)(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?")    # RFC 3986 B
PLAIN_URL = lazy_re(     # most URLs: already in the wire form, with no port; the way past everything else in this room
    r"(https?://(?=[^/]{1,253}/)((?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}))"
    r"((?:/(?!\.|%2[eE])[A-Za-z0-9._~!$&'()*+,;=:@%\[\]-]*)+)(\?[A-Za-z0-9._~!$&'()*+,;=:@%\[\]/?-]*)?")
PLAIN_HOST = lazy_re(r"(?=.{1,253}\Z)(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}")
ASCII_HOST = lazy_re(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
NEVER_IN_URL = r"[\x00-\x1f\x7f\ud800-\udfff]"
UNSAFE_IN_URL = lazy_re(r"[^!#-;=?-\[\]_a-z~]+")         # space " < > \ ^ ` { | } and all beyond ASCII; a stray % stays as it stands
DOT_SEGMENT = lazy_re(r"/(?:\.|%2[eE]){1,2}(?:/|\Z)")
DOT_SEGMENT_NAMES = {".": 1, "%2e": 1, "..": 2, ".%2e": 2, "%2e.": 2, "%2e%2e": 2}
IDNA_DEVIATIONS = "[\u00df\u1e9e\u03c2\u200c\u200d]"      # IDNA 2003 and 2008 lead these to different hosts
IPV4_PART = lazy_re(r"0x[0-9a-f]*|[0-9]+")
IPV4_QUAD = r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}"
IPV6_GROUP = r"[0-9A-Fa-f]{1,4}"
USERINFO = (                # all before the last @ of the authority; where a "port" is no number, a password holds a / ? or #
    r"(?s)\A((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)?(?:[^/?#]*|[^/?#:\[]*:(?![0-9]*(?:[/?#]|\Z)).*)@")
INNER_USERINFO = r"//[^\s/?#]*@"         # a URL within a URL


class UrlParts(NamedTuple):
    scheme: str                 # "http" or "https"
    userinfo: str | None
    host: str                   # as normalize_host gives it
    port: int | None            # where the URL writes one
    path: str                   # "" or from its "/" on; from here on as written
    query: str | None           # without its "?"; "" is not None
    fragment: str | None


def printable(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """Foreign text as one line for a terminal or a log: nothing in it moves a cursor, hides or reorders; at most `limit` characters.

    >>> printable("a\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    shown = text[:limit + 1].replace("\xa0", " ")
    if not shown.isprintable():
        shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in shown)
    return shown if len(shown) <= limit else shown[:max(0, limit - 3)] + "..."


def mask_credentials(text_url: str) -> str:
    """A URL, a proxy setting or what was meant to be one, with its userinfo as `***`. Never raises.

    >>> mask_credentials("http://user:pa/ss@proxy:3128"), mask_credentials("https://x.test/@user")
    ('http://***@proxy:3128', 'https://x.test/@user')
    """
    return re.sub(INNER_USERINFO, "//***@", re.sub(USERINFO, r"\1***@", text_url, count=1))


def percent_encode(match: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in match[0].encode("utf-8", "replace"))


def ipv4_number(host: str) -> int | None:
    """The 32 bits that a host of numbers means to `inet_aton` and browsers: decimal, octal or hex, one to four parts; else None.

    >>> [f"{ipv4_number(host):x}" for host in ("127.0.0.1", "0x7f.1", "0177.0.0.1", "2130706433")]
    ['7f000001', '7f000001', '7f000001', '7f000001']
    """
    parts = host.split(".")
    if len(parts) > 4 or not all(map(IPV4_PART.fullmatch, parts)):
        return None
    try:
        *bytes_first, rest = (int(part[2:] or "0", 16) if part[:2] == "0x" else int(part, 8 if part[0] == "0" else 10) for part in parts)
    except ValueError:          # 08, or more digits than Python converts
        return None
    rest_bits = 8 * (4 - len(bytes_first))
    if rest >> rest_bits or any(byte > 255 for byte in bytes_first):
        return None
    return sum(byte << 24 - 8 * place for place, byte in enumerate(bytes_first)) + rest


def ipv6_number(text: str) -> int | None:
    """The 128 bits of an IPv6 address without brackets and scope; None where it is none."""
    if len(text) > 45:          # six full groups and a full dotted quad
        return None
    before, _, last = text.rpartition(":")
    if "." in last:
        quad = ipv4_number(last) if re.fullmatch(IPV4_QUAD, last) else None
        if quad is None:
            return None
        text = f"{before}:{quad >> 16:x}:{quad & 0xFFFF:x}"
    head, gap, tail = text.partition("::")
    left, right = (side.split(":") if side else [] for side in (head, tail))
    missing = 8 - len(left) - len(right)
    if (missing < 1 if gap else missing != 0) or not all(re.fullmatch(IPV6_GROUP, group) for group in left + right):
        return None
    return int("".join(group.zfill(4) for group in left + ["0"] * missing + right), 16)


def ipv4_text(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def ipv6_text(number: int) -> str:
    """RFC 5952, always in hex: `ipaddress` began to write mapped addresses with dots in 3.13."""
    groups = ":".join(f"{number >> shift & 0xFFFF:x}" for shift in range(112, -1, -16))
    longest = max(re.finditer(r"(?<![^:])0(?::0)+(?![^:])", groups), key=lambda run: run.end() - run.start(), default=None)
    return f"{groups[:longest.start()].rstrip(':')}::{groups[longest.end():].lstrip(':')}" if longest else groups


def idna_ascii(name: str, shown: str) -> str:
    deviation = re.search(IDNA_DEVIATIONS, name)
    if deviation:
        raise ValueError(f"host is {shown}, want its punycode (xn--...), since IDNA versions differ on U+{ord(deviation[0]):04X}")
    labels = re.split("[.\u3002\uff0e\uff61]", name)
    if any(len(label) > 63 for label in labels):                # before the codec, which is quadratic
        raise ValueError(f"host is {shown}, want labels of at most 63 characters")
    try:
        return ".".join(labels).encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"host is {shown}, want a name that IDNA can encode") from None


def normalize_host(host: str) -> str:
    """The one spelling of a host that every gate and the request see; ValueError where it is none.

    Lower case, A-labels, no final dot; a number is the IPv4 address that it means, so that no spelling of 127.0.0.1 slips by;
    IPv6 compressed, in brackets.
    >>> normalize_host("B\\xfccher.Example."), normalize_host("0x7f.1"), normalize_host("[0:0::1]")
    ('xn--bcher-kva.example', '127.0.0.1', '[::1]')
    """
    if PLAIN_HOST.fullmatch(host):
        return host
    shown = repr(host[:80])
    if host.startswith("["):
        number = ipv6_number(host[1:-1]) if host.endswith("]") else None
        if number is None:
            raise ValueError(f"host is {shown}, want an IPv6 address in brackets, without a scope")
        return f"[{ipv6_text(number)}]"
    if len(host) > MAX_HOST_CHARACTERS:
        raise ValueError(f"host has {len(host)} characters, want at most 253")
    name = host
    if "%" in name:             # an escape would hide a listed host
        octets = re.sub(rb"%([0-9A-Fa-f]{2})", lambda escape: bytes([int(escape[1], 16)]), name.encode("utf-8", "replace"))
        name = octets.decode("utf-8", "replace")                # U+FFFD is no host character
    if not name.isascii():
        name = idna_ascii(name, shown)
    name = name.lower().removesuffix(".")
    if not ASCII_HOST.fullmatch(name):
        raise ValueError(f"host is {shown}, want labels of letters, digits and hyphens, 63 characters each, 253 in all")
    if IPV4_PART.fullmatch(name[name.rfind(".") + 1:]):
        number = ipv4_number(name)
        if number is None:
            raise ValueError(f"host is {shown}, want an IPv4 address, since it ends in a number")
        return ipv4_text(number)
    return name


def split_reference(reference: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    """(scheme, authority, path, query, fragment) of any URI reference, as written; None where a part is absent (RFC 3986 appendix B)."""
    match = URL_SPLIT.fullmatch(reference)
    assert match is not None, "the expression matches every text"
    scheme, authority, path, query, fragment = match.groups()
    return scheme, authority, path, query, fragment


def split_url(url: str) -> UrlParts:
    """The parts of an absolute http(s) URL; ValueError otherwise.

    Unlike `urllib.parse`, nothing is silently removed, and an empty query is not lost.
    >>> split_url("HTTP://Example.com:81?")
    UrlParts(scheme='http', userinfo=None, host='example.com', port=81, path='', query='', fragment=None)
    """
    if len(url) > MAX_URL_LENGTH:
        raise ValueError(f"URL has {len(url)} characters, want at most {MAX_URL_LENGTH}")
    stray = None if url.isascii() and url.isprintable() else re.search(NEVER_IN_URL, url)
    if stray:
        raise ValueError(f"URL has {stray[0]!r} at character {stray.start() + 1}, want no control characters and no lone surrogates")
    scheme, authority, path, query, fragment = split_reference(url)
    scheme = (scheme or "").lower()
    if scheme not in DEFAULT_PORTS:
        raise ValueError(f"URL is {mask_credentials(url)[:80]!r}, want one that begins with http:// or https://")
    userinfo, at, host_port = (authority or "").rpartition("@")
    bracket = host_port.find("]") + 1
    name, _, digits = host_port[bracket:].partition(":")
    host = host_port[:bracket] + name
    if not host or "\\" in userinfo:
        raise ValueError(f"URL is {mask_credentials(url)[:80]!r}, want a host after {scheme}://")
    if digits and not (re.fullmatch("[0-9]{1,5}", digits) and 0 < int(digits) < 65536):
        raise ValueError(f"URL is {mask_credentials(url)[:80]!r}, want a port of 1 to 65535")     # the "port" may be half a password
    return UrlParts(scheme, userinfo if at else None, normalize_host(host), int(digits) if digits else None, path, query, fragment)


def parts_host_key(parts: UrlParts) -> str:
    return parts.host if parts.port in (None, DEFAULT_PORTS[parts.scheme]) else f"{parts.host}:{parts.port}"


def host_key(url: str) -> str:
    """The throttle key of R4: the host, with `:port` where that is not the scheme's default. ValueError as `split_url`.

    >>> host_key("https://Example.com:443/"), host_key("http://example.com:8080/")
    ('example.com', 'example.com:8080')
    """
    plain = PLAIN_URL.fullmatch(url)
    if plain and len(url) <= MAX_URL_LENGTH:
        return plain[2]
    return parts_host_key(split_url(url))


def canonical_url(url: str) -> str:
    """The de-duplication key of R7 (spec 10.2); never what is requested. ValueError as `split_url`.

    >>> canonical_url("HTTPS://x.test:443/a/?q=1#f")
    'https://x.test/a?q=1'
    """
    plain = PLAIN_URL.fullmatch(url)
    if plain and len(url) <= MAX_URL_LENGTH:
        origin, _, path, question_query = plain.groups("")
        if path == "/" or not path.endswith("/"):
            return url      # the same string, not another: a run may hold 10^6 of them
    else:
        parts = split_url(url)
        origin, path = f"{parts.scheme}://{parts_host_key(parts)}", parts.path
        question_query = "" if parts.query is None else f"?{parts.query}"
    return f"{origin}{path.removesuffix('/') or '/'}{question_query}"       # a single slash goes: /a// is /a/


def resolve_dot_segments(path: str) -> str:
    """RFC 3986 5.2.4 for a path from its "/" on; `%2e` is a dot, as it is to servers and browsers."""
    if not DOT_SEGMENT.search(path):
        return path
    kept: list[str] = []
    dots = 0
    for segment in path.split("/")[1:]:
        dots = DOT_SEGMENT_NAMES.get(segment.lower(), 0) if len(segment) < 7 else 0
        if dots == 0:
            kept.append(segment)
        elif dots == 2 and kept:
            kept.pop()
    return "/" + "/".join(kept + [""] if dots and kept else kept)


def wire_url(url: str) -> str:
    """The one form of a target that gates and request see: ASCII, dot segments resolved, no fragment; nothing else is rewritten.

    ValueError as `split_url`, and for credentials. What it gives, it gives back unchanged.
    >>> wire_url("https://Example.com./a/%2e%2E/b c?q#f")
    'https://example.com/b%20c?q'
    """
    if PLAIN_URL.fullmatch(url) and len(url) <= MAX_URL_LENGTH:
        return url
    parts = split_url(url)
    if parts.userinfo is not None:
        raise ValueError("URL has credentials before its @, want none")
    port = "" if parts.port is None else f":{parts.port}"
    target = resolve_dot_segments(parts.path or "/") + ("" if parts.query is None else f"?{parts.query}")
    wire = f"{parts.scheme}://{parts.host}{port}{UNSAFE_IN_URL.sub(percent_encode, target)}"
    if len(wire) > MAX_URL_LENGTH:
        raise ValueError(f"URL has {len(wire)} characters when encoded, want at most {MAX_URL_LENGTH}")
    return wire


def path_and_query(wire: str) -> str:
    """What robots.txt is asked about, and what the request line carries."""
    return wire[wire.index("/", 8):]


def robots_url(wire: str) -> str:
    """Where a site keeps its rules (RFC 9309 2.3).

    >>> robots_url("http://x.test:81/a?b")
    'http://x.test:81/robots.txt'
    """
    return wire[:wire.index("/", 8)] + "/robots.txt"


def site_key(wire: str) -> str:
    """What a robots.txt is kept by (RFC 9309 2.3): scheme, host and port, the default port written out.

    >>> site_key("https://x.test/a")
    'https://x.test:443'
    """
    origin = wire[:wire.index("/", 8)]
    return origin if re.search(r":[0-9]+\Z", origin) else f"{origin}:{DEFAULT_PORTS[origin[:origin.index(':')]]}"


def resolve_url(base: str, reference: str) -> str:
    """The absolute URL that a link or a Location means (RFC 3986 5.2); of any scheme, so `wire_url` judges what comes back.

    ValueError where it has a control character, is relative to nothing, or outgrows MAX_URL_LENGTH.
    >>> resolve_url("https://x.test/a/b?c", "../d#e")
    'https://x.test/d#e'
    """
    scheme, authority, path, query, fragment = split_reference(reference)
    if scheme is None:
        scheme, base_authority, base_path, base_query, _ = split_reference(base)
        if not scheme or not base_authority:
            raise ValueError(f"base is {mask_credentials(base)[:80]!r}, want an absolute URL to resolve against")
        if authority is None:
            authority = base_authority
            if not path:
                path, query = base_path, base_query if query is None else query
            elif not path.startswith("/"):
                path = base_path[:base_path.rfind("/") + 1] + path if base_path else f"/{path}"
    if authority is not None:   # else x:/.//host would grow one
        path = resolve_dot_segments(path)
    pieces = (f"{scheme}:", "" if authority is None else f"//{authority}", path,
              "" if query is None else f"?{query}", "" if fragment is None else f"#{fragment}")
    resolved = "".join(pieces)
    if len(resolved) > MAX_URL_LENGTH or re.search(NEVER_IN_URL, resolved):
        raise ValueError(f"URL is {mask_credentials(resolved)[:80]!r}, want at most {MAX_URL_LENGTH} characters, and no controls")
    return resolved


# Which addresses are public: the IANA special-purpose registries. The first row that holds an address decides; "" is public.
IPV4_BLOCKS = tuple(((ipv4_number(block) or 0) >> 32 - size, 32 - size, reason) for block, size, reason in (
    ("0.0.0.0", 8, "an address of this network"), ("10.0.0.0", 8, "a private address"),
    ("100.64.0.0", 10, "a carrier-grade NAT address"), ("127.0.0.0", 8, "a loopback address"),
    ("168.63.129.16", 32, "a cloud metadata address"), ("169.254.169.254", 32, "a cloud metadata address"),
    ("169.254.0.0", 16, "a link-local address"), ("172.16.0.0", 12, "a private address"),
    ("192.0.0.0", 24, "an IETF protocol address"), ("192.0.2.0", 24, "a documentation address"),
    ("192.88.99.0", 24, "a 6to4 relay address"), ("192.168.0.0", 16, "a private address"),
    ("198.18.0.0", 15, "a benchmarking address"), ("198.51.100.0", 24, "a documentation address"),
    ("203.0.113.0", 24, "a documentation address"), ("224.0.0.0", 4, "a multicast address"),
    ("255.255.255.255", 32, "the broadcast address"), ("240.0.0.0", 4, "a reserved address"),
))
IPV6_BLOCKS = tuple(((ipv6_number(block) or 0) >> 128 - size, 128 - size, reason) for block, size, reason in (
    ("::", 128, "the unspecified address"), ("::1", 128, "a loopback address"),
    ("fd00:ec2::254", 128, "a cloud metadata address"), ("fc00::", 7, "a unique local address"),
    ("fe80::", 10, "a link-local address"), ("fec0::", 10, "a site-local address"), ("ff00::", 8, "a multicast address"),
    ("100::", 64, "a discard-only address"), ("5f00::", 16, "a segment routing address"), ("64:ff9b:1::", 48, "a local NAT64 address"),
    ("2001:1::1", 128, ""), ("2001:1::2", 128, ""), ("2001:1::3", 128, ""), ("2001:3::", 32, ""), ("2001:4:112::", 48, ""),
    ("2001:2::", 48, "a benchmarking address"), ("2001:10::", 28, "an ORCHID"), ("2001:20::", 28, "an ORCHID"),
    ("2001:db8::", 32, "a documentation address"), ("3fff::", 20, "a documentation address"),
    ("2001::", 23, "an IETF protocol address"), ("2000::", 3, ""), ("::", 0, "outside the global unicast space 2000::/3"),
))
IPV4_INSIDE: tuple[tuple[str, int, Callable[[int], tuple[int, ...]]], ...] = (
    ("::ffff:0:0", 96, lambda ipv6: (ipv6,)), ("::", 96, lambda ipv6: (ipv6,)),                 # mapped, compatible
    ("64:ff9b::", 96, lambda ipv6: (ipv6,)), ("64:ff9b:1::", 96, lambda ipv6: (ipv6,)),         # NAT64; the rest of RFC 8215 is refused
    ("2002::", 16, lambda ipv6: (ipv6 >> 80,)),                                                 # 6to4
    ("2001::", 32, lambda ipv6: (ipv6 >> 64, ~ipv6)),                                           # Teredo: server, and client bit-flipped
)
IPV4_INSIDE_BLOCKS = tuple(((ipv6_number(block) or 0) >> 128 - size, 128 - size, inside) for block, size, inside in IPV4_INSIDE)
PRIVATE_NAMES = {       # a name or a parent of it
    "localhost": "a loopback name", "localdomain": "a loopback name", "ip6-localhost": "a loopback name", "ip6-loopback": "a loopback name",
    "local": "a name of the local link", "internal": "a name for private use", "home.arpa": "a name of a home network",
}


def block_reason(number: int, blocks: tuple[tuple[int, int, str], ...]) -> str:
    return next((reason for block, shift, reason in blocks if number >> shift == block), "")


def address_refusal(address_text: str) -> str:
    """ "" where the IP literal is a public unicast address, else one line that says why it is not asked. Never raises.

    NAT64, 6to4, Teredo and IPv4 in IPv6 are judged by the address inside. The table is ours: `ipaddress.is_global` differs
    between patch releases.
    >>> address_refusal("8.8.8.8"), address_refusal("::ffff:7f00:1")
    ('', '::ffff:7f00:1 is 127.0.0.1 inside, a loopback address')
    """
    shown = printable(address_text, 80)
    if "%" in address_text:
        return f"{shown} has a scope: a link-local address"
    ipv4 = ipv4_number(address_text)
    if ipv4 is not None:
        reason = block_reason(ipv4, IPV4_BLOCKS)
        return reason and f"{shown} is {reason}"
    ipv6 = ipv6_number(address_text)
    if ipv6 is None:
        return f"{shown} is no IP address"
    inside = next((numbers(ipv6) for block, shift, numbers in IPV4_INSIDE_BLOCKS if ipv6 >> shift == block), ()) if ipv6 > 1 else ()
    for number in inside:       # :: and ::1 are no IPv4-compatible addresses
        reason = block_reason(number & 0xFFFFFFFF, IPV4_BLOCKS)
        if reason:
            return f"{shown} is {ipv4_text(number)} inside, {reason}"
    if inside:
        return ""
    reason = block_reason(ipv6, IPV6_BLOCKS)
    return reason and f"{shown} is {reason}"


def host_refusal(host: str) -> str:
    """ "" where a normalised host may be asked as far as its spelling tells, else why not; what a name resolves to is for the door.

    >>> host_refusal("printer.local"), host_refusal("[::1]"), host_refusal("example.com")
    ('printer.local is a name of the local link', '::1 is a loopback address', '')
    """
    if host.startswith("["):
        return address_refusal(host[1:-1])
    if IPV4_PART.fullmatch(host[host.rfind(".") + 1:]):
        return address_refusal(host)
    labels = host.rsplit(".", 2)
    for name in (labels[-1], ".".join(labels[-2:])):
        if name in PRIVATE_NAMES:
            return f"{printable(host, 80)} is {PRIVATE_NAMES[name]}"
    return ""


# === 5. ROBOTS   R2 a-d   spec 9.1 ========================================
# Owns the meaning of a robots.txt text and of the status it came with. Knows no clock, no cache, no network.

# Publishers make mistakes. What restricts us or names a group is read as meant, as the large crawlers do; a misspelt Allow never is (R2c).
ROBOTS_BLANKS = " \t\f\v\xa0\ufeff"         # editors leave no-break spaces and byte order marks behind; no line ends among them
ROBOTS_AGENT_FIELD = r"user[-_{blank}]*ag(?:ent|net|ant|nt)s?"
ROBOTS_DISALLOW_FIELD = r"d[ei](?:as|s*a?)l+[ao]w"
# A field without its colon is one where exactly one word follows: a line of prose is no rule.
ROBOTS_FIELD_END = r"(?:[{blank}]*:|[{blank}]+(?=[^{blank}\n#]+[{blank}]*(?:[\n#]|\Z)))"


def robots_line_regex(pattern: str) -> re.Pattern[str]:
    """A regex of whole fields. Texts have a line feed before every line, so that the search leaps from one to the next."""
    return lazy_re((r"(?ai)\n[{blank}]*" + pattern).replace("{blank}", ROBOTS_BLANKS))


ROBOTS_AGENT_LINE = robots_line_regex(ROBOTS_AGENT_FIELD + ROBOTS_FIELD_END + r"([^\n#]*)")
ROBOTS_RULE_LINE = robots_line_regex(rf"(?:(?:allow|crawl-delay)[{{blank}}]*:|{ROBOTS_DISALLOW_FIELD}{ROBOTS_FIELD_END})")
ROBOTS_RESTRICTING_LINE = robots_line_regex(rf"(?:crawl-delay|{ROBOTS_DISALLOW_FIELD})")
ROBOTS_GROUP_LINE = robots_line_regex(
    rf"(?:(allow|crawl-delay|content-signal)[{{blank}}]*:|{ROBOTS_DISALLOW_FIELD}{ROBOTS_FIELD_END})([^\n#]*)")
ROBOTS_SITEMAP_LINE = robots_line_regex(r"site-?map[{blank}]*:[{blank}]*(https?://[^\n#{blank}]+)")
ROBOTS_DECIMAL = lazy_re(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
ROBOTS_SIGNAL = lazy_re(r"([A-Za-z][A-Za-z0-9_-]*)[ \t]*=[ \t]*([A-Za-z0-9_-]+)")

# A raw `*` or `$` of a URL is `%2A` or `%24` to a rule (RFC 9309 figure 6): only rules have them among what stands as it is.
ROBOTS_STANDING = r"A-Za-z0-9\-._~:/?\[\]@!&'()+,;="
ROBOTS_STANDING_OCTET = r"%(?:[0189A-F][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[BCDF])"       # in upper case, and not of an unreserved one
ROBOTS_PLAIN_TARGET = lazy_re(rf"(?:https?://[^/?#]*)?(/[{ROBOTS_STANDING}]*(?:{ROBOTS_STANDING_OCTET}[{ROBOTS_STANDING}]*)*)")
ROBOTS_PLAIN_VALUE = lazy_re(rf"[{ROBOTS_STANDING}*$]*(?:{ROBOTS_STANDING_OCTET}[{ROBOTS_STANDING}*$]*)*")
ROBOTS_OCTET = lazy_re(rf"%[0-9A-Fa-f]{{2}}|[^{ROBOTS_STANDING}*$%]")
ROBOTS_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
ROBOTS_ABSOLUTE_URL = lazy_re(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
ROBOTS_UNDECODED = lazy_re("[\ud800-\udfff]")

ROBOTS_STATUS_MEANINGS = {
    301: "redirect", 302: "redirect", 303: "redirect", 307: "redirect", 308: "redirect",    # RFC 9309 2.3.1.2
    429: "backoff", 503: "backoff",                                                         # R5
}
ROBOTS_STATUS_CLASS_MEANINGS = {
    2: "rules",     # spec 9.1.1, RFC 9309 2.3.1.1
    3: "none",      # leads nowhere: unavailable, RFC 9309 2.3.1.2
    4: "none",      # spec 9.1.1, RFC 9309 2.3.1.3
}


def robots_meaning(status: int) -> str:
    """What an HTTP status of /robots.txt means: "rules", "none", "unreachable", "backoff" or "redirect". Spec 9.1.1.

    >>> [robots_meaning(status) for status in (200, 304, 307, 404, 429, 500)]
    ['rules', 'none', 'redirect', 'none', 'backoff', 'unreachable']
    """
    return ROBOTS_STATUS_MEANINGS.get(status) or ROBOTS_STATUS_CLASS_MEANINGS.get(status // 100, "unreachable")


def robots_text(body: bytes | bytearray | str) -> str:
    """The lines that count, a line feed before each; octets that are no UTF-8 survive as lone surrogates."""
    if isinstance(body, str):
        body = body[:MAX_ROBOTS_BYTES + 1].encode("utf-8", "surrogatepass")
    text = "\n" + bytes(body[:MAX_ROBOTS_BYTES]).decode("utf-8", "surrogateescape")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if body[MAX_ROBOTS_BYTES:MAX_ROBOTS_BYTES + 1] in (b"", b"\r", b"\n"):
        return text
    # Of a line that was cut in two only what restricts is kept, up to the last octet that is certain (R2c).
    last = text.rindex("\n")
    return text[:last] + (re.sub(r"(?:%[0-9A-Fa-f]?|\$)\Z", "", text[last:]) if ROBOTS_RESTRICTING_LINE.match(text, last) else "")


def robots_agent_name(value: str) -> str:
    """The product token of a User-agent value, lower-case; "" where it names nobody. Spec 9.1.3.

    >>> [robots_agent_name(value) for value in ("Walsh-Research/1.2", "Walsh*", "* all", "/")]
    ['walsh-research', 'walsh', '*', '']
    """
    words = value.partition("/")[0].split(None, 1)
    if not words or not words[0].isascii():
        return ""
    return words[0].rstrip("*").lower() or "*"


def robots_group(text: str, token: str) -> tuple[str | None, list[tuple[int, int]]]:
    """The selected User-agent value as written, or None, and where in `text` its groups lie. R2a, spec 9.1.2 and 9.1.3."""
    agents = [(found.start(), found.end(), found[1]) for found in ROBOTS_AGENT_LINE.finditer(text)]
    names = {value: robots_agent_name(value.strip(ROBOTS_BLANKS)) for _, _, value in agents}
    wanted = max((name for name in names.values() if name and token.startswith(name)), key=len, default="*")
    if wanted not in names.values():
        return None, []
    group, spans = "", []
    begin, chosen = 0, False            # of the group that is being read
    next_starts = [start for start, _, _ in agents[1:]] + [len(text)]
    for (_, end, value), next_start in zip(agents, next_starts):
        if begin == 0:
            begin = end
        if names[value] == wanted:
            chosen, group = True, group or value.strip(ROBOTS_BLANKS)
        if next_start == len(text) or ROBOTS_RULE_LINE.search(text, end, next_start):      # a rule closes the list of agents
            if chosen:
                spans.append((begin, next_start))
            begin, chosen = 0, False
    return group, spans


def robots_octet_form(found: re.Match[str]) -> str:
    text = found.group()
    if len(text) == 1:
        return f"%{ord(text):02X}"
    char = chr(int(text[1:], 16))
    return char if char in ROBOTS_UNRESERVED else text.upper()


def robots_octets(text: str) -> str:
    """One spelling for both sides: unreserved octets decoded, unsafe ones and those beyond ASCII encoded, hex in upper case.

    Reserved characters stay as they stand: `%2F` is not `/` (spec 9.1.4, RFC 9309 2.2.2). One pass, so that `%2541` never becomes `%41`.
    >>> robots_octets("/%7eann/%2fx y")
    '/~ann/%2Fx%20y'
    """
    if not text.isascii():
        text = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return ROBOTS_OCTET.sub(robots_octet_form, text)


def robots_resolve_dots(path: str) -> str:
    """RFC 3986 5.2.4, for a path whose dots are no longer encoded.

    >>> robots_resolve_dots("/a/./b/../../c/..")
    '/'
    """
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            del kept[max(1, len(kept) - 1):]        # the root stays
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)


def robots_target(target: str) -> str:
    """What rules are held against: path and query of an absolute URL or of a `path[?query]`, in one spelling. Never raises.

    >>> robots_target("https://x.test?q=%41#top"), robots_target("/a/%2e%2E/b")
    ('/?q=A', '/b')
    """
    plain = ROBOTS_PLAIN_TARGET.fullmatch(target)       # most are: one look instead of six
    if plain and "/." not in plain[1]:
        return plain[1]
    authority = ROBOTS_ABSOLUTE_URL.match(target)
    target = target[authority.end() if authority else 0:].partition("#")[0]
    if target[:1] in ("", "?"):
        target = "/" + target
    if not target.isascii():            # any lone surrogate becomes the kind that robots_octets() can encode
        target = target.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    target = robots_octets(target).replace("*", "%2A").replace("$", "%24")
    if "/." not in target and target[0] == "/":
        return target
    path, mark, query = target.partition("?")
    return robots_resolve_dots(path) + mark + query


class RobotsPattern(NamedTuple):
    """A rule value with a `*` or a final `$`."""

    needle: str         # its longest piece: where that is missing, nothing else need be tried
    head: str           # what stands before the first `*`
    pieces: list[str]   # what stands after each `*`
    anchored: bool
    allow: bool
    order: int          # among the Allow and Disallow lines of the group


class RobotsIndex(NamedTuple):
    """The rules of a group, ready to be asked: literal values sorted, so that a decision bisects them and never walks them."""

    prefixes: list[str]                     # sorted, distinct
    parents: list[int]                      # of each prefix: the position of the longest other one that it begins with, or -1
    outcomes: dict[str, tuple[bool, int]]   # of each prefix: allow, order
    patterns: list[RobotsPattern]
    weight: int                             # of all patterns: one each, and one for every 64 characters of it


def robots_match_length(head: str, pieces: Sequence[str], anchored: bool, path: str, longest: bool) -> int | None:
    """Octets of `path` that the pattern covers by its longest or its shortest expansion; None where it does not match.

    R2b, spec 9.1.4. Other parsers count the pattern; here a `*` counts what it consumed. `$` consumes nothing, pieces never overlap.
    The leftmost place for every inner piece leaves the most room to the last one, which alone decides the length.
    >>> robots_match_length("/", [".pdf"], True, "/docs/a.pdf", longest=True)
    11
    >>> [robots_match_length("/a", ["b"], False, "/abxbx", longest) for longest in (True, False)]
    [5, 3]
    """
    if not path.startswith(head):
        return None
    at = len(head)
    if not pieces:
        return at if not anchored or at == len(path) else None
    for piece in pieces[:-1]:
        at = path.find(piece, at)
        if at < 0:
            return None
        at += len(piece)
    last = pieces[-1]
    if anchored:
        return len(path) if path.endswith(last, at) else None
    at = path.rfind(last, at) if longest else path.find(last, at)
    return at + len(last) if at >= 0 else None


def robots_index(rules: Iterable[tuple[bool, str]]) -> RobotsIndex:
    """The rules (allow, value) of one group, made ready."""
    outcomes: dict[str, tuple[bool, int]] = {}
    patterns: list[RobotsPattern] = []
    weight = 0
    for order, (allow, value) in enumerate(rules):
        if not ROBOTS_PLAIN_VALUE.fullmatch(value):
            value = robots_octets(value)
        anchored = value[-1:] == "$"                # only a final `$` is an anchor
        if "$" in value:
            value = value[:-1].replace("$", "%24") if anchored else value.replace("$", "%24")
        if anchored or "*" in value:
            head, *rest = value.split("*")
            pieces = [piece for piece in rest[:-1] if piece] + rest[-1:]
            patterns.append(RobotsPattern(max([head, *pieces], key=len), head, pieces, anchored, allow, order))
            weight += 1 + len(value) // 64
        elif value and (value not in outcomes or allow and not outcomes[value][0]):
            outcomes[value] = allow, order          # an empty value matches nothing; of equals, Allow wins (spec 9.1.4)
    prefixes, parents = sorted(outcomes), []
    open_prefixes: list[int] = []
    for position, prefix in enumerate(prefixes):
        while open_prefixes and not prefix.startswith(prefixes[open_prefixes[-1]]):
            open_prefixes.pop()
        parents.append(open_prefixes[-1] if open_prefixes else -1)
        open_prefixes.append(position)
    return RobotsIndex(prefixes, parents, outcomes, patterns, weight)


def robots_decide(rules: RobotsIndex, path: str) -> tuple[bool, int] | None:
    """The winning rule as (allow, order), or None where none matches. R2b: the longest match; of equals, Allow."""
    prefixes, parents, outcomes, patterns, weight = rules
    best_length, best = -1, None
    # Whatever sorts between a prefix of `path` and `path` begins with that prefix: all that match are the neighbour or its parents.
    position = bisect_right(prefixes, path) - 1
    while position >= 0 and not path.startswith(prefixes[position]):
        position = parents[position]
    if position >= 0:
        best_length, best = len(prefixes[position]), outcomes[prefixes[position]]
    is_affordable = weight * len(path) <= MAX_WILDCARD_OCTETS
    for needle, head, pieces, anchored, allow, order in patterns:
        if not is_affordable:       # R2c: what would take too long to know is denied
            length = len(path) if path.startswith(head) and not allow else None
        elif needle in path:
            length = robots_match_length(head, pieces, anchored, path, longest=not allow)
        else:
            continue
        if length is not None and (length > best_length or length == best_length and allow):
            best_length, best = length, (allow, order)
    return best


def robots_shown(text: str) -> str:
    """File text that any output can encode."""
    return text if text.isascii() else ROBOTS_UNDECODED.sub("\ufffd", text)


def robots_is_text(text: str) -> bool:
    """False for a binary that a server calls robots.txt: a NUL, or a third of it no UTF-8 (RFC 9309 2.3.1.5 still obeys its lines)."""
    if "\0" in text:
        return False
    return text.isascii() or len(ROBOTS_UNDECODED.findall(text)) * 3 < len(text)


class RobotsTxt:
    """A robots.txt as one product token reads it: the selected group and what stands outside of groups. R2.

    Parsing finds the group; its rules are read when they are first asked for.
    >>> robots = RobotsTxt.parse("User-agent: *\\nDisallow: /private\\nAllow: /private/tea")
    >>> robots.group, robots.allows("https://x.test/private/tea?cup=2"), robots.match("/private")
    ('*', True, Rule(allow=False, value='/private', line=2))
    """

    __slots__ = ("_crawl_delay", "_index", "_otherwise", "_rules", "_signals", "_spans", "_text", "group")

    def __init__(self, text: str, group: str | None, spans: list[tuple[int, int]]) -> None:
        self.group = group if group is None else robots_shown(group)
        self._text = text
        self._spans = spans
        self._rules: list[Rule] | None = None
        self._index: RobotsIndex | None = None
        self._otherwise: Verdict | None = None      # where no rule matches
        self._crawl_delay: float | None = -1.0      # not yet read
        self._signals: dict[str, str] | None = None

    @classmethod
    def parse(cls, body: bytes | bytearray | str, token: str = UA_TOKEN) -> RobotsTxt:
        """The reading of `body` (its first 500 KiB) by `token`. Never raises. Spec 9.1.1 to 9.1.3."""
        text = robots_text(body)
        return cls(text, *robots_group(text, robots_agent_name(token)))

    def _group_lines(self) -> Iterator[tuple[str, str]]:
        """(field, value) of the group's lines; field is lower-case, "" for Disallow."""
        for begin, end in self._spans:
            for found in ROBOTS_GROUP_LINE.finditer(self._text, begin, end):
                yield (found[1] or "").lower(), (found[2] or "").strip(ROBOTS_BLANKS)

    @property
    def rules(self) -> list[Rule]:
        """The Allow and Disallow lines of the selected group, in file order."""
        if self._rules is None:
            self._rules, line, counted = [], 0, 0
            for begin, end in self._spans:
                for found in ROBOTS_GROUP_LINE.finditer(self._text, begin, end):
                    if (found[1] or "allow").lower() != "allow":
                        continue
                    line += self._text.count("\n", counted, found.start() + 1)      # onwards from the last: never from the top for each
                    counted = found.start() + 1
                    self._rules.append(Rule(bool(found[1]), robots_shown(found[2].strip(ROBOTS_BLANKS)), line))
        return self._rules

    @property
    def crawl_delay(self) -> float | None:
        """Seconds, the largest of the group; None where it names none. R2d, spec 9.1.5."""
        if self._crawl_delay == -1.0:
            named = [float(value) for field, value in self._group_lines() if field == "crawl-delay" and ROBOTS_DECIMAL.fullmatch(value)]
            self._crawl_delay = max((seconds for seconds in named if seconds != float("inf")), default=None)
        return self._crawl_delay

    @property
    def sitemaps(self) -> list[str]:
        """Absolute http(s) URLs of the Sitemap lines, which belong to no group, in file order."""
        found = ROBOTS_SITEMAP_LINE.findall(self._text)
        return [robots_shown(url) for url in found if len(url) <= MAX_SITEMAP_URL_LENGTH][:MAX_SITEMAPS]

    @property
    def content_signals(self) -> dict[str, str]:
        """Content-Signal of the selected group, as {"ai-train": "no"}; where lines contradict each other, "no" stands.

        Shown and never a gate: it binds uses of content (training, AI input, search) that this bot makes none of.
        """
        if self._signals is None:
            self._signals = {}
            for field, value in self._group_lines():
                for name, answer in ROBOTS_SIGNAL.findall(value) if field == "content-signal" else ():
                    if self._signals.get(name.lower(), "").lower() != "no":
                        self._signals[name.lower()] = answer
        return dict(self._signals)

    def _decision(self, target: str) -> tuple[bool, int] | None:
        if self._index is None:
            self._index = robots_index((field == "allow", value) for field, value in self._group_lines() if field in ("", "allow"))
        path = robots_target(target)
        if path[:11] == "/robots.txt" and path[11:12] in ("", "?"):         # implicitly allowed (RFC 9309 2.2.2)
            return None
        return robots_decide(self._index, path)

    def ruling(self, target: str) -> tuple[Verdict, Rule | None]:
        """What the file says of `target`, an absolute URL or a `path[?query]`, and the rule that decides. R2b, spec 9.1.4."""
        decision = self._decision(target)
        if decision:
            return Verdict.ALLOWED_EXPLICIT if decision[0] else Verdict.DISALLOWED_EXPLICIT, self.rules[decision[1]]
        if self._otherwise is None:
            self._otherwise = Verdict.ALLOWED_IMPLICIT if robots_is_text(self._text) else Verdict.UNKNOWN_PARSE_ERROR
        return self._otherwise, None

    def verdict(self, target: str) -> Verdict:
        return self.ruling(target)[0]

    def allows(self, target: str) -> bool:
        """False where a Disallow line wins."""
        decision = self._decision(target)
        return decision is None or decision[0]

    def match(self, target: str) -> Rule | None:
        """The rule that decides, or None where none matches."""
        return self.ruling(target)[1]


# === 6. SCHEMA   R3c   spec 9.2, 11.1 ====================================
# Owns JSON as it arrives and a Draft 2020-12 subset: a schema is compiled once to closures, then applied. Knows no blocklist.

def json_nesting_exceeds(body: bytes, max_depth: int) -> bool:
    """Whether arrays and objects nest deeper: counted by C-speed replacements, since the decoder's own C recursion must never begin."""
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return False
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")          # escapes first: then every quote begins or ends a string
    bare = bare.translate(bytes.maketrans(b"{}", b"[]"), bytes(set(range(256)) - set(b'"[]{}')))
    bare = b"".join(bare.replace(b'""', b"").split(b'"')[::2])
    for _ in range(max_depth):
        bare, before = bare.replace(b"[]", b""), len(bare)          # the innermost level goes
        if len(bare) == before:
            break
    return b"[]" in bare or bare.count(b"[") > max_depth


def parse_json(body: bytes, what: str, max_depth: int = MAX_JSON_DEPTH) -> Any:
    """The JSON value in `body` (UTF-8, a byte order mark is accepted); ValueError names `what` where there is none.

    Refused besides broken JSON: NaN and Infinity, deeper nesting than `max_depth`, integers that take quadratic time.
    >>> parse_json(b'{"refresh": "PT6H"}', "blocklist")
    {'refresh': 'PT6H'}
    """
    import json  # only where a document arrives

    def refused_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def bounded_integer(digits: str) -> int:
        if len(digits) > MAX_JSON_DIGITS:
            raise ValueError(f"an integer of {len(digits)} digits, want at most {MAX_JSON_DIGITS}")
        return int(digits)

    if json_nesting_exceeds(body, max_depth):
        raise ValueError(f"{what} nests deeper than {max_depth} levels")
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=refused_constant, parse_int=bounded_integer)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON: {error}") from None


# 6a. Patterns: ECMA 262, written again for `re`, which must never backtrack without bound.
ECMA_SPACES = {      # within a set; with re.ASCII, `\s` alone is the first six
    "\\s": r"\s\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
    "\\S": r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\ufefe"
           r"\uff00-\U0010ffff"}
PATTERN_ESCAPE = r"\\[dDwWsStnvfr]|\\0(?![0-9])|\\x[0-9A-Fa-f]{2}|\\u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4}|\\[!-/:-@\[-`{-~]"
PATTERN_SET_ITEM = lazy_re(rf"({PATTERN_ESCAPE}|\\b|[^\]\\])(?:-({PATTERN_ESCAPE}|[^\]\\]))?")
PATTERN_TOKEN = lazy_re(
    rf"(?P<set>\[\^?(?:{PATTERN_ESCAPE}|\\b|[^\]\\])*\])|(?P<atom>{PATTERN_ESCAPE}|[^\\()\[\]{{}}*+?|^$])|(?P<edge>\\b|[$^])"
    r"|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))|(?P<bar>\|)|(?P<count>(?:[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})\??(?![*+?{]))")
REWRITTEN_TOKENS = {"(": "(?:", "$": r"\Z", ".": r"[^\n\r\u2028\u2029]", **{escape: f"[{items}]" for escape, items in ECMA_SPACES.items()}}
BEYOND_ASCII = lazy_re(r"[^ -~]|\[\^|\\[xuUDWS]")       # a class, as written for `re`, that may hold more than ASCII


class PatternPiece(NamedTuple):
    """A part of a pattern: the positions that it may begin and end with, and whether it may match nothing."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    is_optional: bool = True


class PatternGraph:
    """Which character class may follow which (Glushkov's construction). A class is a bit set: ASCII, and one for what lies beyond."""

    def __init__(self) -> None:
        self.classes: list[int] = []
        self.follow: list[set[int]] = []

    def position(self, written: str) -> PatternPiece:
        matches: Callable[[str], Any] = lazy_re(written, re.ASCII).match if len(written) > 1 else written.__eq__
        self.classes.append(sum(1 << code for code in range(128) if matches(chr(code))) | bool(BEYOND_ASCII.search(written)) << 128)
        self.follow.append(set())
        here = frozenset([len(self.follow) - 1])
        return PatternPiece(here, here, False)

    def sequence(self, pieces: list[PatternPiece]) -> PatternPiece:
        first, last, is_optional = PatternPiece()
        for piece in pieces:
            for position in last:
                self.follow[position] |= piece.first
            first = first | piece.first if is_optional else first
            last = last | piece.last if piece.is_optional else piece.last
            is_optional = is_optional and piece.is_optional
        return PatternPiece(first, last, is_optional)

    def choice(self, branches: list[list[PatternPiece]]) -> PatternPiece:
        pieces = [self.sequence(branch) for branch in branches]
        if sum(piece.is_optional for piece in pieces) > 1:
            raise ValueError("two branches that may match nothing")
        return PatternPiece(frozenset().union(*(piece.first for piece in pieces)), frozenset().union(*(piece.last for piece in pieces)),
                            any(piece.is_optional for piece in pieces))

    def counted(self, piece: PatternPiece, count: str) -> PatternPiece:
        """Every count but `?` passes for endless, which only makes the proof stricter."""
        if piece.is_optional or count[0] != "?" and any(self.follow[position] & piece.first for position in piece.last):
            raise ValueError("a repetition of a repetition")
        if count[0] != "?":
            self.sequence([piece, piece])
        return piece._replace(is_optional=count[0] in "*?" or count.startswith("{0"))

    def reachable(self, position: int) -> set[int]:
        reached, edge = set(), [position]      # type: set[int], list[int]
        while edge:
            edge += self.follow[edge.pop()] - reached
            reached.update(edge)
        return reached

    def is_ambiguous(self, starts: frozenset[int]) -> bool:
        """Whether two walkers that read one text can part and meet again; ValueError where they can do so within a loop."""
        pairs = [*((one, one) for one in range(len(self.follow))), *((one, other) for one in starts for other in starts if one < other)]
        seen, steps, found = set(pairs), 0, False
        for left, right in pairs:       # grows while it is read
            steps += 1 + len(self.follow[left]) * len(self.follow[right])
            if steps > MAX_PATTERN_STEPS:
                raise ValueError("too large to be proved harmless")
            if not self.classes[left] & self.classes[right]:
                continue
            if left != right:
                for meeting in self.follow[left] & self.follow[right]:
                    found, steps = True, steps + len(self.follow)
                    if {left, right} <= self.reachable(meeting):
                        raise ValueError("could backtrack without bound")
            fresh = {(one, other) for one in self.follow[left] for other in self.follow[right] if one != other} - seen
            seen |= fresh
            pairs += fresh
        return found


def pattern_set(text: str) -> str:
    """A `[…]` of ECMA 262 as `re` writes it with re.ASCII."""
    def escaped(item: str) -> str:
        return ECMA_SPACES.get(item) or (item if item.startswith("\\") else re.escape(item))

    start = 2 if text.startswith("[^") else 1
    return text[:start] + PATTERN_SET_ITEM.sub(lambda item: "-".join(map(escaped, filter(None, item.groups()))), text[start:-1]) + "]"


def read_pattern(source: str) -> tuple[Callable[[str], Any], int]:
    """The search function and the longest text that it may see; ValueError, OverflowError or re.error where it is refused.

    Where no two ways through a pattern read the same text, backtracking is linear. Where two do, it is a power of the length, by the loops.
    """
    tokens = [(str(token.lastgroup), token[0]) for token in PATTERN_TOKEN.finditer(source[:MAX_PATTERN_LENGTH])]
    if "".join(text for _, text in tokens) != source:
        raise ValueError(f"a part that is not supported, or more than {MAX_PATTERN_LENGTH} characters")
    tokens = [(kind, pattern_set(text) if kind == "set" else REWRITTEN_TOKENS.get(text, text)) for kind, text in tokens]
    search = re.compile("".join(written for _, written in tokens), re.ASCII).search     # `re` sees to the syntax
    graph, groups = PatternGraph(), [[[]]]     # type: PatternGraph, list[list[list[PatternPiece]]]
    for kind, written in tokens:
        if kind == "open":
            groups.append([[]])
        elif kind == "bar":
            groups[-1].append([])
        else:
            piece = (PatternPiece() if kind == "edge" else graph.choice(groups.pop()) if kind == "close"
                     else graph.counted(groups[-1][-1].pop(), written) if kind == "count" else graph.position(written))
            groups[-1][-1].append(piece)
    is_anchored = source.startswith("^") and len(groups[0]) == 1
    whole = graph.choice(groups[0])
    if not is_anchored:     # a search tries every start, as if the pattern began with .*
        whole = graph.sequence([graph.counted(graph.position(r"[\x00-\U0010ffff]"), "*"), whole])
    if not graph.is_ambiguous(whole.first):
        return search, sys.maxsize
    loops = sum(kind == "count" and written[0] != "?" for kind, written in tokens) + (not is_anchored)
    if loops > 3 or sum(kind == "bar" or written[0] == "?" for kind, written in tokens) > 6:
        raise ValueError("could backtrack without bound")
    return search, int(MAX_PATTERN_WORK ** (1 / max(loops, 2)))


def compile_pattern(source: str) -> Callable[[str], Any]:
    """An ECMA pattern as a search. UnsupportedSchema where it is none that is read here, or could backtrack without bound."""
    try:
        search, longest = read_pattern(source)
    except (ValueError, OverflowError, RecursionError, re.error) as error:
        raise UnsupportedSchema(f"pattern {source[:80]!r}: {error}") from None

    def search_bounded(text: str) -> Any:
        if len(text) > longest:
            raise SchemaMismatch("pattern", f"{len(text)} characters, want at most {longest} for {source[:80]!r}", is_final=True)
        return search(text)
    return search if longest == sys.maxsize else search_bounded


# 6b. Schemas: every subschema is found and every reference resolved, then each becomes a function of the instance.
class SchemaMismatch(Exception):
    """An assertion that failed, on its way up; `path` grows from the value to the root. A final one is not excused by `not` or `anyOf`."""

    def __init__(self, keyword: str, detail: str, path: Iterable[str | int] = (), is_final: bool = False) -> None:
        self.keyword, self.detail, self.path, self.is_final = keyword, detail, list(path), is_final


if TYPE_CHECKING:
    SchemaCheck = Callable[[Any], None]      # raises SchemaMismatch


def brief_value(value: Any) -> str:
    """A value for a message, whatever its size: 5,000 digits are more than `str` converts."""
    if isinstance(value, (dict, list)):
        is_short = isinstance(value, list) and len(value) < 9 and all(isinstance(item, str) for item in value)
        return str(value)[:200] if is_short else f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    return repr(value[:60] if isinstance(value, str) else value)


def json_key(value: Any) -> str:
    """A text that equal JSON values share (1.0 is 1, true is not, members have no order); numbers could be made to collide when hashed."""
    if isinstance(value, str):
        return f"{len(value)}:{value}"
    if isinstance(value, dict):
        return "{" + ",".join(json_key(name) + json_key(value[name]) for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_key, value)) + "]"
    is_whole = isinstance(value, float) and value.is_integer() or isinstance(value, int) and not isinstance(value, bool)
    return hex(int(value)) if is_whole else repr(value)


def is_multiple(value: Any, step: Any) -> bool:
    """As JSON writes the numbers: 0.07 is a multiple of 0.01, which binary fractions deny."""
    from fractions import Fraction  # only for this keyword
    if value - value != 0:      # infinite
        return False
    exact_value, exact_step = (Fraction(number if isinstance(number, int) else repr(number)) for number in (value, step))
    return exact_value % exact_step == 0


def holds(check: SchemaCheck, value: Any) -> bool:
    try:
        check(value)
    except SchemaMismatch as mismatch:
        if mismatch.is_final:
            raise
        return False
    return True


def apply_all(value: Any, checks: list[SchemaCheck]) -> bool:
    for check in checks:
        check(value)
    return True


def apply_if(value: Any, checks: list[SchemaCheck]) -> bool:
    condition, consequence, alternative = checks
    (consequence if holds(condition, value) else alternative)(value)
    return True


def apply_items(value: Any, checks: tuple[list[SchemaCheck], SchemaCheck]) -> bool:
    prefix, rest = checks
    index = 0
    try:
        for index, item in enumerate(value):
            (prefix[index] if index < len(prefix) else rest)(item)
    except SchemaMismatch as mismatch:
        mismatch.path.append(index)
        raise
    return True


def apply_members(value: Any, checks: tuple[dict[str, SchemaCheck], list[tuple[Callable[[str], Any], SchemaCheck]], SchemaCheck]) -> bool:
    properties, patterns, rest = checks
    name = ""
    try:
        for name, content in value.items():
            check = properties.get(name)
            if patterns:
                matching = [wanted for search, wanted in patterns if search(name)] + ([check] if check else [])
                apply_all(content, matching or [rest])
            else:
                (check or rest)(content)
    except SchemaMismatch as mismatch:
        mismatch.path.append(name)
        raise
    return True


EVERY_TYPE, NUMBERS = (dict, list, str, int, float, bool, type(None)), (int, float)
JSON_TYPES: dict[str, tuple[type, ...]] = {"object": (dict,), "array": (list,), "string": (str,), "number": NUMBERS, "integer": (int,),
                                           "boolean": (bool,), "null": (type(None),)}
MEASURED: tuple[tuple[str, type], ...] = (("Length", str), ("Items", list), ("Properties", dict))
# What is asserted: the types that the keyword is about, and what must hold of (instance, the keyword's value once compiled).
ASSERTIONS: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], Any]]] = {
    **{f"min{what}": ((kind,), lambda value, least: len(value) >= least) for what, kind in MEASURED},
    **{f"max{what}": ((kind,), lambda value, most: len(value) <= most) for what, kind in MEASURED},
    "minimum": (NUMBERS, operator.ge), "exclusiveMinimum": (NUMBERS, operator.gt),
    "maximum": (NUMBERS, operator.le), "exclusiveMaximum": (NUMBERS, operator.lt), "multipleOf": (NUMBERS, is_multiple),
    "pattern": ((str,), lambda value, search: search(value) is not None),
    "enum": (EVERY_TYPE, lambda value, keys: json_key(value) in keys),
    "const": (EVERY_TYPE, lambda value, key: json_key(value) == key),
    "uniqueItems": ((list,), lambda value, wanted: not wanted or len(set(map(json_key, value))) == len(value)),
    "contains": ((list,), lambda value, wanted: wanted[1] <= sum(holds(wanted[0], item) for item in value) <= wanted[2]),
    "required": ((dict,), lambda value, names: value.keys() >= names),
    "dependentRequired": ((dict,), lambda value, others: all(value.keys() >= set(others[name]) for name in others.keys() & value.keys())),
    "propertyNames": ((dict,), lambda value, check: all(holds(check, name) for name in value)),
    "items": ((list,), apply_items), "properties": ((dict,), apply_members),
    "dependentSchemas": ((dict,), lambda value, checks: apply_all(value, [checks[name] for name in checks.keys() & value.keys()])),
    "$ref": (EVERY_TYPE, apply_all), "allOf": (EVERY_TYPE, apply_all), "if": (EVERY_TYPE, apply_if),
    "anyOf": (EVERY_TYPE, lambda value, checks: any(holds(check, value) for check in checks)),
    "oneOf": (EVERY_TYPE, lambda value, checks: sum(holds(check, value) for check in checks) == 1),
    "not": (EVERY_TYPE, lambda value, check: not holds(check, value)),
}
# What the value of each keyword must be, as a schema; a keyword that is not here is an annotation.
A_NUMBER, A_COUNT, A_TEXT = {"type": "number"}, {"type": "integer", "minimum": 0}, {"type": "string"}
NAMES = {"type": "array", "items": A_TEXT, "uniqueItems": True}
A_SCHEMA = {"type": ["object", "boolean"]}
SCHEMAS, SCHEMA_MAP = {"type": "array", "minItems": 1, "items": A_SCHEMA}, {"type": "object", "additionalProperties": A_SCHEMA}
IN_PLACE_SHAPES = {**dict.fromkeys(("not", "if", "then", "else"), A_SCHEMA), **dict.fromkeys(("allOf", "anyOf", "oneOf"), SCHEMAS),
                   "dependentSchemas": SCHEMA_MAP}
APPLIED_SHAPES = {**IN_PLACE_SHAPES, **dict.fromkeys(("items", "contains", "additionalProperties", "propertyNames"), A_SCHEMA),
                  "prefixItems": SCHEMAS, "properties": SCHEMA_MAP, "patternProperties": SCHEMA_MAP}
KEYWORD_SHAPES: dict[str, Any] = {
    **APPLIED_SHAPES, "$defs": SCHEMA_MAP, **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), A_NUMBER),
    "multipleOf": {"type": "number", "exclusiveMinimum": 0}, "uniqueItems": {"type": "boolean"}, "enum": {"type": "array"},
    **{f"{end}{what}": A_COUNT for end in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")},
    "required": NAMES, "dependentRequired": {"type": "object", "additionalProperties": NAMES},
    **dict.fromkeys(("$id", "$ref", "$anchor", "$dynamicAnchor", "pattern"), A_TEXT),
    "type": {"anyOf": [{"enum": list(JSON_TYPES)}, {**NAMES, "minItems": 1, "items": {"enum": list(JSON_TYPES)}}]},
    "$schema": {"enum": ["https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"]},
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef", "$vocabulary"), False),
}


def subschemas(schema: dict[str, Any], keywords: Iterable[str]) -> Iterator[Any]:
    """The schemas that these keywords of a well-formed schema hold, alone or in a list or map."""
    for keyword in keywords:
        if keyword in schema:
            shape, content = KEYWORD_SHAPES[keyword], schema[keyword]
            yield from content.values() if shape is SCHEMA_MAP else content if shape is SCHEMAS else [content]


def referenced_schema(root: Any, reference: str, anchors: dict[str, Any]) -> Any:
    """The subschema that a $ref of this document names; a foreign document is never fetched."""
    base, _, fragment = reference.partition("#")
    found = root if base in ("", root.get("$id", "").partition("#")[0]) else None
    if "%" in fragment:
        from urllib.parse import unquote  # only for a percent-encoded pointer
        fragment = unquote(fragment)
    if found is not None and fragment and not fragment.startswith("/"):
        found = anchors.get(fragment)
    for part in fragment.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = dict(zip(map(str, range(len(found))), found))
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, (dict, bool)):
        raise UnsupportedSchema(f"$ref {reference[:200]!r} names no schema of this document")
    return found


@cache
def shape_check(keyword: str) -> SchemaCheck:
    """Whether the value of a keyword is well-formed; a schema uses few of them."""
    return schema_function(KEYWORD_SHAPES[keyword], {}, set(), {})


def link_schema(root: Any) -> tuple[dict[str, Any], set[int]]:
    """What each $ref names, and which schemas several places apply.

    UnsupportedSchema for what is malformed, not implemented, or applies itself to the same instance, even where nothing uses it.
    """
    from graphlib import CycleError, TopologicalSorter


    targets, anchors, in_place = {}, {}, {}      # type: dict[str, Any], dict[str, Any], dict[int, list[int]]
    applied, waiting, references = [id(root)], [root], []      # type: list[int], list[Any], list[dict[str, Any]]
    while waiting or references:
        if not waiting:     # all that is nested is known by now, and with it every anchor
            holder = references.pop()
            waiting = [targets.setdefault(holder["$ref"], referenced_schema(root, holder["$ref"], anchors))]
            in_place[id(holder)].append(id(waiting[0]))
            applied.append(id(waiting[0]))
        schema = waiting.pop()
        if id(schema) in in_place or isinstance(schema, bool):
            continue
        for keyword, content in schema.items():
            if keyword in KEYWORD_SHAPES and not holds(shape_check(keyword), content) or keyword == "$id" and schema is not root:
                raise UnsupportedSchema(f"{keyword} of {brief_value(content)} is not supported")
            if keyword in ("$anchor", "$dynamicAnchor") and anchors.setdefault(content, schema) is not schema:
                raise UnsupportedSchema(f"{keyword} {content!r} is given twice")
        children = list(subschemas(schema, APPLIED_SHAPES))
        in_place[id(schema)] = list(map(id, subschemas(schema, IN_PLACE_SHAPES)))
        applied += map(id, children)
        waiting += [*children, *subschemas(schema, ["$defs"])]
        references += [schema] if "$ref" in schema else []
        if len(in_place) > MAX_SUBSCHEMAS:
            raise UnsupportedSchema(f"more than {MAX_SUBSCHEMAS} subschemas")
    try:
        TopologicalSorter(in_place).prepare()
    except CycleError:
        raise UnsupportedSchema("a $ref leads back to itself without descending") from None
    once: set[int] = set()
    return targets, {key for key in applied if key in once or once.add(key)}       # type: ignore[func-returns-value]


def asserting(keyword: str, wanted: Any, holds_for: Callable[[Any, Any], Any], compiled: Any) -> SchemaCheck:
    def check_assertion(value: Any) -> None:
        if not holds_for(value, compiled):
            raise SchemaMismatch(keyword, f"{brief_value(value)}, want {brief_value(wanted)}")
    return check_assertion


def remembering(check: SchemaCheck, known: dict[tuple[int, int], Any]) -> SchemaCheck:
    """A schema that several places apply sees each value once, so that doubling is no work."""
    def check_once(value: Any) -> None:
        key = (id(check), id(value))
        outcome = known.get(key, known)
        if outcome is known:
            outcome = None
            try:
                check(value)
            except SchemaMismatch as mismatch:
                outcome = (mismatch.keyword, mismatch.detail, tuple(mismatch.path), mismatch.is_final)
            known[key] = outcome
        if outcome is not None:
            raise SchemaMismatch(*outcome)
    return check_once


if TYPE_CHECKING:
    Compiled = Callable[[Any, str], Any]     # of a keyword's value: its schemas as checks, alone or in a list or map; else the value itself
# What an assertion wants instead, where it is compiled from another form or from several keywords.
OPERANDS: dict[str, Callable[[dict[str, Any], Compiled], Any]] = {
    "pattern": lambda schema, compiled: compile_pattern(schema["pattern"]),
    "enum": lambda schema, compiled: frozenset(map(json_key, schema["enum"])),
    "const": lambda schema, compiled: json_key(schema["const"]),
    "required": lambda schema, compiled: frozenset(schema["required"]),
    "if": lambda schema, compiled: [compiled(schema.get(keyword, True), keyword) for keyword in ("if", "then", "else")],
    "contains": lambda schema, compiled: (
        compiled(schema["contains"], "contains"), schema.get("minContains", 1), schema.get("maxContains", sys.maxsize)),
    "items": lambda schema, compiled: (
        compiled(schema.get("prefixItems", []), "prefixItems"), compiled(schema.get("items", True), "items")),
    "properties": lambda schema, compiled: (
        compiled(schema.get("properties", {}), "properties"),
        [(compile_pattern(source), check) for source, check in compiled(schema.get("patternProperties", {}), "patternProperties").items()],
        compiled(schema.get("additionalProperties", True), "additionalProperties")),
}
ASSERTED_WITH = {"prefixItems": "items", "patternProperties": "properties", "additionalProperties": "properties"}


def schema_check(schema: dict[str, Any], compiled: Compiled) -> SchemaCheck:
    """One schema's keywords as one function: a table from the value's type to what is asked of it."""
    for unused in schema.keys() & {"$defs", "then", "else"}:        # read all the same: a refusal must not depend on what is used
        compiled(schema[unused], unused)
    given = {ASSERTED_WITH.get(keyword, keyword) for keyword in schema}
    asserted = {keyword: asserting(keyword, schema.get(keyword), holds_for, OPERANDS[keyword](schema, compiled) if keyword in OPERANDS
                                   else compiled(schema[keyword], keyword))
                for keyword, (_, holds_for) in ASSERTIONS.items() if keyword in given}
    if [*asserted] == ["$ref"] and "type" not in schema:        # hot: the entries of a list are a lone $ref
        check_ref: SchemaCheck = compiled(schema["$ref"], "$ref")[0]
        return check_ref
    names = schema.get("type", [*JSON_TYPES])
    names = [names] if isinstance(names, str) else names
    check_type = asserting("type", schema.get("type"), lambda value, wanted: isinstance(value, float) and value.is_integer() and
                           "integer" in wanted, names)
    allowed = {kind for name in names for kind in JSON_TYPES[name]}
    table = {kind: [check for keyword, check in asserted.items() if kind in ASSERTIONS[keyword][0]] for kind in EVERY_TYPE}
    for kind in EVERY_TYPE:
        table[kind][:0] = [] if kind in allowed else [check_type]

    def check_value(value: Any) -> None:
        for check in table.get(type(value), (check_type,)):
            check(value)
    return check_value


def schema_function(root: Any, targets: dict[str, Any], shared: set[int], known: dict[tuple[int, int], Any]) -> SchemaCheck:
    checks: dict[int, SchemaCheck] = {}

    def check_of(schema: Any, keyword: str) -> SchemaCheck:
        key = id(schema)
        if isinstance(schema, bool):
            return asserting(keyword, schema, lambda value, allowed: allowed, schema)
        if key not in checks:
            checks[key] = lambda value: checks[key](value)       # for a $ref inside itself
            check = schema_check(schema, compiled)
            checks[key] = remembering(check, known) if key in shared else check
        return checks[key]

    def compiled(content: Any, keyword: str) -> Any:
        shape = KEYWORD_SHAPES.get(keyword)
        if keyword == "$ref":
            return [check_of(targets[content], keyword)]
        if shape is SCHEMA_MAP:
            return {name: check_of(child, keyword) for name, child in content.items()}
        if shape is SCHEMAS:
            return [check_of(child, keyword) for child in content]
        return check_of(content, keyword) if shape is A_SCHEMA else content

    return check_of(root, "false")


def compile_schema(schema: Any) -> Callable[[Any], None]:
    """The schema as a function of the instance: None where it holds, else SchemaViolation. R3c, Draft 2020-12.

    UnsupportedSchema where it asserts what is not implemented here, is malformed, never ends, or holds a pattern that may
    backtrack without bound. `format`, `content*` and unknown keywords are annotations.
    """
    known: dict[tuple[int, int], Any] = {}
    if not isinstance(schema, (dict, bool)):
        raise UnsupportedSchema(f"the schema is {brief_value(schema)}, want an object")
    try:
        check = schema_function(schema, *link_schema(schema), known)
    except RecursionError:
        raise UnsupportedSchema("the schema nests too deep") from None

    def check_instance(instance: Any) -> None:
        try:
            check(instance)
        except SchemaMismatch as mismatch:
            pointer = "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in reversed(mismatch.path))
            raise SchemaViolation(pointer, mismatch.keyword, mismatch.detail) from None
        except RecursionError:
            raise SchemaViolation("", "$ref", "nests deeper than can be validated") from None
        finally:
            known.clear()       # identities are those of this instance
    return check_instance


def validate(instance: Any, schema: Any) -> None:
    """None where the parsed JSON `instance` holds; SchemaViolation (JSON Pointer, keyword) or UnsupportedSchema, both ValueError.

    >>> validate({"domain": "example.com"}, {"required": ["domain"]})
    >>> validate([1, "two"], {"items": {"type": "integer"}})
    Traceback (most recent call last):
    walsh_research.SchemaViolation: /1: type: 'two', want 'integer'
    """
    compile_schema(schema)(instance)


# === 7. BLOCKLIST   R3 a c, R10   spec 9.2, 11.1 =========================
# Owns which document is adopted and which host it covers. Forgiving about spelling: an opt-out must never be lost.
CONTRACT_MAJOR_1 = lazy_re(BLOCKLIST_CONTRACT + r"(?:\.[0-9]+)*")
URL_TAIL = lazy_re(r"[/?#\\]")
NO_DOMAIN = lazy_re(r"[\x00-\x20\x7f\"#%*,/<>?@\\^`{|}]|\.\.")
IGNORED_IN_HOSTS = dict.fromkeys([0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFE0F, 0xFEFF])      # what IDNA maps to nothing


class BlockedDomain(NamedTuple):
    """One opt-out; `domain` as the document lists it, the rest is informational."""

    domain: str
    added: str
    reason: str


def folded_host(text: str) -> str:
    """Full-width, ideographic stops, NFD and case become one form. ß stays itself: its punycode is another name than `ss`."""
    import unicodedata  # only for names beyond ASCII
    text = unicodedata.normalize("NFKC", text.translate(IGNORED_IN_HOSTS))
    return unicodedata.normalize("NFKC", text.lower()).replace("\u03c2", "\u03c3").replace("\u3002", ".")


def unicode_label(label: str) -> str:
    """An A-label as its folded U-label; any other label as it stands."""
    if not label.startswith("xn--") or not 4 < len(label) <= 63:        # the codec is quadratic
        return label
    try:
        decoded = folded_host(label[4:].encode("ascii").decode("punycode"))
    except (UnicodeError, OverflowError):
        return label
    return label if decoded.isascii() or NO_DOMAIN.search(decoded) or "." in decoded else decoded


def blocklist_key(host: str) -> str:
    """The one form in which listed domains and asked hosts are compared; "" where nothing is left.

    >>> blocklist_key(" *.B\\u00dcCHER.example.:443 ") == blocklist_key("xn--bcher-kva.example")
    True
    """
    if (host.isascii() and host.islower() and host.replace(".", "").replace("-", "").isalnum() and host[0] != "." != host[-1]
            and ".." not in host and "xn--" not in host and len(host) <= MAX_BLOCKLIST_KEY):
        return host         # plain already: thrice as fast as a regular expression
    if "%" in host:
        from urllib.parse import unquote  # only for a percent-encoded host
        host = unquote(host)
    host = host.lower() if host.isascii() else folded_host(host)
    host = URL_TAIL.split(host.split("//", 1)[-1], maxsplit=1)[0].rpartition("@")[2].strip()
    if host.startswith("[") or host.count(":") > 1:
        return ip6_key(host)
    host = host.partition(":")[0].lstrip("*. \t\r\n").rstrip(". \t\r\n")
    if len(host) > MAX_BLOCKLIST_KEY:       # no listed domain is that long: whole labels at the end decide
        host = host[-MAX_BLOCKLIST_KEY:].partition(".")[2]
    return ".".join(map(unicode_label, host.split("."))) if "xn--" in host else host


def ip6_key(host: str) -> str:
    from ipaddress import ip_address  # only for a host in IPv6 form
    inside = host.partition("[")[2].partition("]")[0] if host.startswith("[") else host
    try:
        return str(ip_address(inside.partition("%")[0]))
    except ValueError:
        return inside[-MAX_BLOCKLIST_KEY:].strip(". ")


def listed_domains(blocked: list[Any], warnings: list[str]) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
    """key -> row of the entries that can be domains; BlocklistRejected where one is no object with a string `domain`."""
    index: dict[str, int] = {}
    rows: list[tuple[str, str, str]] = []
    for number, entry in enumerate(blocked):
        domain = entry.get("domain") if isinstance(entry, dict) else None
        if not isinstance(domain, str):
            raise BlocklistRejected(f"/blocked/{number}: domain is {brief_value(domain)}, want a string")
        key = blocklist_key(domain)
        is_plain = key is domain and key.replace(".", "").replace("-", "").isalnum() and ".." not in key      # as most are
        if not is_plain and (not key or len(key) > MAX_BLOCKLIST_KEY or NO_DOMAIN.search(key)):
            warnings.append(f"/blocked/{number}: {brief_value(domain)} cannot be a domain")
            continue
        if not is_plain and "/" in domain:
            warnings.append(f"/blocked/{number}: {brief_value(domain)} is no domain, taken as {brief_value(key)}")
        if key not in index:
            index[key] = len(rows)
            added, reason = entry.get("added"), entry.get("reason")
            rows.append((domain, added if isinstance(added, str) else "", reason if isinstance(reason, str) else ""))
    return index, rows


def blocklist_refresh_seconds(refresh: Any, warnings: list[str]) -> float:
    """The document's own refresh, kept within five minutes and seven days; PT6H where it names none that can be read."""
    if refresh is None:
        refresh = BLOCKLIST_REFRESH
    try:
        seconds = parse_duration(refresh if isinstance(refresh, str) else "")
    except ValueError:
        warnings.append(f"refresh is {brief_value(refresh)}, taken as {BLOCKLIST_REFRESH}")
        seconds = parse_duration(BLOCKLIST_REFRESH)
    return float(min(max(seconds, MIN_BLOCKLIST_REFRESH_SECONDS), MAX_BLOCKLIST_REFRESH_SECONDS))


class Blocklist:
    """An adopted list of opt-outs (R3). Look-ups do not grow with its length.

    `refresh_seconds` (float, within five minutes and seven days), `updated` (as the document writes it), `warnings`
    (at most MAX_BLOCKLIST_WARNINGS lines about entries that cannot hold).
    """

    def __init__(self, columns: dict[str, Any], index: dict[str, int], warnings: tuple[str, ...] = ()) -> None:
        self._columns, self._index, self._rows = columns, index, []      # type: dict[str, Any], dict[str, int], list[list[str]]
        self._depths = sorted({key.count(".") + 1 for key in index})       # only suffixes of so many labels can be listed
        self.refresh_seconds: float = columns["refresh_seconds"]
        self.updated: str = columns["updated"]
        self.warnings = warnings

    def __len__(self) -> int:
        return len(self._index)

    def blocks(self, host: str) -> BlockedDomain | None:
        """The entry that covers `host` (R3a: the domain itself or any subdomain), or None. Port, case and spelling aside."""
        labels = blocklist_key(host).split(".")
        for depth in self._depths:
            if depth > len(labels):
                break
            row = self._index.get(".".join(labels[-depth:]))
            if row is not None:
                if not self._rows:      # split at the first hit: most runs never have one
                    self._rows = [self._columns[name].split("\n") for name in ("domains", "added", "reasons")]
                domains, added, reasons = self._rows
                return BlockedDomain(domains[row], added[row], reasons[row])
        return None

    def to_columns(self) -> dict[str, Any]:
        """Plain data for the cache: strings of lines, all equally long, and two scalars."""
        return dict(self._columns)

    @classmethod
    def from_columns(cls, columns: dict[str, Any]) -> Blocklist:
        """What to_columns gave; ValueError where the shape is another."""
        texts = ("keys", "domains", "added", "reasons")
        if not isinstance(columns, dict) or set(columns) != {*texts, "refresh_seconds", "updated"}:
            raise ValueError("no blocklist columns")
        if not all(type(columns[name]) is str for name in (*texts, "updated")) or type(columns["refresh_seconds"]) is not float:
            raise ValueError("a blocklist column of another type")
        if not MIN_BLOCKLIST_REFRESH_SECONDS <= columns["refresh_seconds"] <= MAX_BLOCKLIST_REFRESH_SECONDS:
            raise ValueError(f"blocklist refresh of {columns['refresh_seconds']} seconds")
        keys = columns["keys"].split("\n") if columns["keys"] else []
        index = dict(zip(keys, range(len(keys))))
        if len(index) != len(keys) or "" in index or any(columns[name].count("\n") != columns["keys"].count("\n") for name in texts):
            raise ValueError("blocklist columns of unequal length")
        return cls(columns, index)

    @classmethod
    def from_document(cls, document: Any, schema: Any = None) -> Blocklist:
        """The list in a parsed `walsh-research-blocklist/v1` document, validated against its inline schema, else against `schema`.

        R3c, R10: BlocklistRejected where the contract's major is unknown, the document does not hold, or there is no schema.
        """
        contract = document.get("contract") if isinstance(document, dict) else None
        if not isinstance(contract, str) or not CONTRACT_MAJOR_1.fullmatch(contract):
            raise BlocklistRejected(f"contract is {brief_value(contract)}, want {BLOCKLIST_CONTRACT!r}")
        schema = document["schema"] if isinstance(document.get("schema"), dict) else schema
        if not isinstance(schema, dict):
            raise BlocklistRejected("no schema, inline or standalone, to validate it against")
        try:
            validate(document, schema)
        except (SchemaViolation, UnsupportedSchema) as error:
            raise BlocklistRejected(f"{'schema' if isinstance(error, UnsupportedSchema) else 'document'}: {error}") from None
        blocked = document.get("blocked")
        if not isinstance(blocked, list):
            raise BlocklistRejected(f"blocked is {brief_value(blocked)}, want an array")
        warnings: list[str] = []
        index, rows = listed_domains(blocked, warnings)
        domains, added, reasons = ("\n".join(text.replace("\n", " ") for text in column) for column in zip(*rows)) if rows else ("", "", "")
        keys, updated = "\n".join(index), document.get("updated")
        columns = {"keys": keys, "domains": keys if domains == keys else domains, "added": added, "reasons": reasons,
                   "refresh_seconds": blocklist_refresh_seconds(document.get("refresh"), warnings),
                   "updated": updated if isinstance(updated, str) else ""}
        if len(warnings) > MAX_BLOCKLIST_WARNINGS:
            warnings[MAX_BLOCKLIST_WARNINGS - 1:] = [f"and {len(warnings) - MAX_BLOCKLIST_WARNINGS + 1} more entries"]
        return cls(columns, index, tuple(warnings))


# === 8. PACING   R4 R5 R8   spec 9.3, 9.4, 10.3 ==========================
# Owns when the next request may start. Is told the time; never reads it.

class HostPace(NamedTuple):
    """What is known of one host's pace; times are seconds on one clock, -inf where nothing is known."""

    last_at: float = -math.inf          # the latest start, or the latest claim of one
    interval: float = 0.0               # what that start asked to be left after it
    departed_at: float = -math.inf      # when a request last really left
    policy_at: float = -math.inf        # the latest policy document that took no slot
    not_before: float = -math.inf       # Retry-After, back-off, or the hold after the last retry
    why: str = ""                       # who asked for not_before, in a few words


UNSEEN_HOST = HostPace()


def roll() -> float:
    """random.random; the module is heavy, and most runs never back off."""
    import random  # slow to import
    return random.random()


def backoff_delay(attempt: int, retry_after: float | None = None, rand: Callable[[], float] = roll) -> float:
    """Seconds to wait before retry number `attempt` (from 0): `retry_after` where given, else full jitter.  R5, spec 9.4.

    >>> backoff_delay(3, rand=lambda: 1.0), backoff_delay(99, rand=lambda: 0.5), backoff_delay(0, retry_after=0.0)
    (8.0, 30.0, 0.0)
    """
    if retry_after is not None:
        return retry_after
    return rand() * min(BACKOFF_CAP, DEFAULT_BACKOFF_BASE * 2.0 ** min(max(attempt, 0), 32))


def request_interval(crawl_delay: float | None) -> float:
    """Seconds between request starts on a host.  R4, R2d."""
    return max(MIN_REQUEST_INTERVAL, crawl_delay or 0.0)


def next_start(pace: HostPace, interval: float, follows_policy: bool) -> float:
    """The earliest permitted start on a host; -inf where it may be at once.  R4

    A host's first target follows its first policy documents at once (`follows_policy` false); all else keeps its distance from them too.
    """
    earliest = max(pace.last_at + max(interval, pace.interval), pace.not_before)
    return max(earliest, pace.policy_at + interval) if follows_policy else earliest


def merge_paces(ours: HostPace, theirs: HostPace, now: float) -> HostPace:
    """Two records of one host as one: the later of each time, and of a clock that jumped only what can be believed."""
    if theirs.last_at > now + MAX_CLAIM_SECONDS or max(theirs.departed_at, theirs.policy_at) > now + 1.0:      # "just now" is safe
        theirs = theirs._replace(last_at=min(theirs.last_at, now), departed_at=min(theirs.departed_at, now), policy_at=min(theirs.policy_at, now))
    if theirs.not_before > now + MAX_HOLD_SECONDS:
        theirs = theirs._replace(not_before=-math.inf, why="")
    start, hold = max((ours, theirs), key=lambda pace: pace.last_at), max((ours, theirs), key=lambda pace: pace.not_before)
    return HostPace(start.last_at, start.interval, max(ours.departed_at, theirs.departed_at), max(ours.policy_at, theirs.policy_at),
                    hold.not_before, hold.why)


def is_fresh(checked_at: float, ttl_seconds: float, now: float) -> bool:
    """R12: younger than its time to live. A time from the future is stale: some clock jumped.

    >>> is_fresh(100.0, 60.0, 159.0), is_fresh(100.0, 60.0, 160.0), is_fresh(200.0, 60.0, 100.0)
    (True, False, False)
    """
    return 0.0 <= now - checked_at < ttl_seconds


# === 9. FRESHNESS   R7 R10 R12   spec 10.2, 11 ===========================
# Owns validators, and what an answer of the network leaves of a policy document.

class Validators(NamedTuple):
    """What a server gave to ask "anything new?" with, byte for byte (as latin-1)."""

    etag: str = ""
    last_modified: str = ""


class RobotsState(NamedTuple):
    """What is held of one site's robots.txt. Times are Unix seconds."""

    robots: RobotsTxt | None = None     # the rules; None: there are none to be had
    body: bytes = b""                   # as fetched, for the cache
    status: int = 0                     # of the answer that stands; 0: no HTTP answer
    fetched_at: float = 0.0             # when `body` was last known to be current
    checked_at: float = 0.0             # when the site was last asked
    retry_at: float = 0.0               # not to be asked again before; 0.0: when the copy is stale
    unreachable_since: float = 0.0      # 0.0: it is reachable
    failures: int = 0                   # since then
    no_network: bool = False            # the last attempt got no HTTP answer at all
    trouble: str = ""                   # why it is unreachable, in one line
    validators: Validators = Validators()


def header_value(headers: Sequence[tuple[str, str]], name: str) -> str:
    """The first value of a header, stripped; "" where it is absent."""
    return next((value.strip() for key, value in headers if key == name), "")


def validators_of(headers: Sequence[tuple[str, str]]) -> Validators:
    """R7: the validators of an answer; one that is longer than a header of ours may be is not kept."""
    given = [header_value(headers, name) for name in ("etag", "last-modified")]
    return Validators(*[value if len(value) <= MAX_VALIDATOR_LENGTH else "" for value in given])


def conditional_headers(validators: Validators) -> dict[str, str]:
    """R7: what is replayed.

    >>> conditional_headers(Validators('W/"a"', ""))
    {'If-None-Match': 'W/"a"'}
    """
    return {name: value for name, value in zip(("If-None-Match", "If-Modified-Since"), validators) if value}


def robots_is_current(state: RobotsState, now: float) -> bool:
    """R2, R12: no need to ask the site: the copy is fresh, or it is too early to ask an unreachable site again."""
    return state.checked_at <= now < (state.retry_at or state.checked_at + ROBOTS_TTL_SECONDS)


def robots_after_answer(held: RobotsState, response: Response, now: float) -> RobotsState:
    """What a final answer to GET /robots.txt leaves behind.  R2, spec 9.1.1"""
    if response.status == 304 and held.robots is not None:      # asked or not: what we hold is what there is
        return RobotsState(held.robots, held.body, 200, now, now, validators=held.validators)
    meaning = robots_meaning(response.status)
    if meaning == "rules":
        body = response.body[:MAX_ROBOTS_BYTES + 1]     # one octet more tells the parser that the file was cut
        return RobotsState(RobotsTxt.parse(body), body, response.status, now, now, validators=validators_of(response.headers))
    if meaning in ("none", "redirect"):         # a redirect that led nowhere: RFC 9309 2.3.1.2
        return RobotsState(status=response.status, fetched_at=now, checked_at=now)
    return robots_after_failure(held, f"robots.txt answered {response.status}", response.status, now)


def robots_after_failure(held: RobotsState, trouble: str, status: int, now: float) -> RobotsState:
    """Unreachable: a copy that is held stays, and the site is asked again soon.  spec 9.1.1, RFC 9309 2.3.1.4"""
    since = held.unreachable_since if 0.0 < held.unreachable_since <= now else now
    return held._replace(status=status, checked_at=now, retry_at=now + POLICY_RETRY_SECONDS, unreachable_since=since, failures=held.failures + 1,
                         no_network=not status, trouble=trouble)


def robots_undefined_for_good(state: RobotsState, now: float) -> bool:
    """RFC 9309 2.3.1.4: after thirty days out of reach a host counts as without rules; two failures a month apart are not that."""
    return bool(state.unreachable_since) and state.failures >= LEAST_FAILURES_FOR_GOOD and now - state.unreachable_since > MAX_UNREACHABLE_SECONDS


# What the shelf keeps of it all, and back: every field is checked, since a cache is hostile too.

def as_number(value: Any) -> float:
    """A finite number, or -inf: a time that is long past."""
    return float(value) if isinstance(value, (int, float)) and -1e12 < value < 1e12 else -math.inf


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def from_entry(defaults: Record, entry: dict[str, Any]) -> Record:
    """`defaults` with what an entry holds for them, each in its own type, and no number less than its default."""
    fields = defaults._asdict()
    for name, default in fields.items():
        value = entry.get(name)
        if isinstance(default, float):
            fields[name] = max(default, as_number(value))
        elif type(value) is type(default):
            fields[name] = value
    return defaults._replace(**fields)


def robots_to_entry(state: RobotsState) -> dict[str, Any]:
    return {**state._asdict(), "robots": None, "validators": None, "body": state.body if state.robots else None, **state.validators._asdict()}


def robots_from_entry(entry: dict[str, Any] | None) -> RobotsState | None:
    if entry is None:
        return None
    state = from_entry(RobotsState(validators=from_entry(Validators(), entry)), entry)
    return state._replace(robots=RobotsTxt.parse(state.body)) if isinstance(entry.get("body"), bytes) else state


def pace_to_entry(pace: HostPace, offset: float) -> dict[str, Any]:
    """On the calendar clock, which all processes share; `offset` is calendar less monotonic."""
    return {**pace._asdict(), **{name: getattr(pace, name) + offset for name in PACE_TIMES}}


def pace_from_entry(entry: dict[str, Any], offset: float) -> HostPace:
    pace = from_entry(UNSEEN_HOST, entry)
    return pace._replace(interval=min(pace.interval, MAX_CLAIM_SECONDS), **{name: getattr(pace, name) - offset for name in PACE_TIMES})


def source_from_entry(entry: dict[str, Any] | None) -> dict[str, Any]:
    entry = entry or {}
    return {"at": as_number(entry.get("at")), "wire": as_text(entry.get("wire")), "validators": from_entry(Validators(), entry)}


# === 10. READINGS   R9 R6 ================================================
# Owns what a body means once it is here: Markdown, llms.txt, a page's head, robots directives, charsets. Feeds and sitemaps follow.

# 10a. Markdown: the block structure of CommonMark decides which text is code; the inline structure decides which brackets are links.
QUOTE = -1                      # a block quote among the open containers; a list item is the width of its indentation
ATTRIBUTE = r"""\s+[A-Za-z_:][A-Za-z0-9_.:-]*(?:\s*=\s*(?:[^\s"'=<>`]+|'[^']*'|"[^"]*"))?"""
TAG = rf"<(?:[A-Za-z][A-Za-z0-9-]*(?:{ATTRIBUTE})*\s*/?|/[A-Za-z][A-Za-z0-9-]*\s*)>"
HTML_BLOCK_NAMES = (
    "address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|"
    "figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|"
    "p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul"
)
BLOCK_STARTS = {                # a line ends in a newline; the first that fits
    "quote": r"> ?",
    "heading": r"#{1,6}(?=[ \n])",
    "fence": r"`{3,}(?=[^`]*$)|~{3,}",
    "rule": "|".join(rf"{mark} *{mark} *{mark}[{mark} ]*$" for mark in (r"\*", "-", "_")),
    "item": r"(?:[-+*]|[0-9]{1,9}[.)])(?: {1,4}(?=[^ \n])|[ \n])",
    "script": r"<(?i:script|pre|style|textarea)(?=[\s>])",
    "comment": "<!--",
    "instruction": r"<\?",
    "declaration": "<![A-Za-z]",
    "cdata": r"<!\[CDATA\[",
    "block": rf"</?(?i:{HTML_BLOCK_NAMES})(?=[\s>]|/>)",
    "tag": rf"{TAG}\s*$",
}
HTML_ENDS = {                   # how raw HTML ends (CommonMark 4.6)
    "script": r"</(?i:script|pre|style|textarea)>", "comment": "-->", "instruction": r"\?>", "declaration": ">", "cdata": r"\]\]>",
    "block": "^ *$", "tag": "^ *$",
}
PARAGRAPH_ENDS = {              # the same in a paragraph: an item must not be empty, and must count from 1
    "underline": r"(?:=+|-+) *$", **BLOCK_STARTS, "item": r"(?:[-+*]|1[.)])(?: {1,4}(?=[^ \n])| (?= +[^ \n]))",
}
BLOCK_START, PARAGRAPH_END = (
    " {0,3}(?=[>#`~<*+_=0-9-])(?:" + "|".join(f"(?P<{kind}>{start})" for kind, start in starts.items()) + ")"
    for starts in (BLOCK_STARTS, PARAGRAPH_ENDS)
)
QUOTE_MARK = lazy_re(" {0,3}> ?")
TABBED_MARKS = lazy_re(r"[ \t>*+.)0-9#_-]{0,256}")     # tab stops count from the line's start, through the marks

ESCAPE = r"\\[!-/:-@\[-`{-~]"
ENTITY = r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{0,31});"
VERBATIM_ENDS = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>", "<!": ">"}      # raw inline HTML that is no tag
VERBATIM_START = r"``*|<!---?>|<!--|<\?|<!\[CDATA\[|<!(?=[A-Za-z])"
OUTSIDE_BRACKETS = lazy_re(rf"\[|!\[|{ESCAPE}|{VERBATIM_START}|<")
INSIDE_BRACKETS = lazy_re(rf"\[|!\[|\]|\\\n|{ESCAPE}|{VERBATIM_START}|<|{ENTITY}|\*\**|__*")
ESCAPE_OR_ENTITY = lazy_re(rf"{ESCAPE}|{ENTITY}")
BACKTICK_RUN = lazy_re("`+")
AUTOLINK_OR_TAG = lazy_re(
    rf"<([A-Za-z][A-Za-z0-9+.-]{{1,31}}:[^<>\x00-\x20]*|[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]+@[A-Za-z0-9.-]+)>|{TAG}"
)
PLAIN_LINK = lazy_re(r"\[([^\[\]\\`<&*_]*)\]\(([^\x00-\x20\x7f()<\\&]*)\)")
DESTINATION_START = lazy_re(r"[ \t\n]*(?:<([^<>\n\\]*(?:\\.[^<>\n\\]*){0,999})>|(?!<))")
RAW_DESTINATION_PART = lazy_re(rf"[^\x00-\x20\x7f()\\]+|{ESCAPE}|\\|[()]")
LINK_TITLE = lazy_re(
    r"""(?s)[ \t\n]+(?:"[^"\\]*(?:\\.[^"\\]*){0,999}"|'[^'\\]*(?:\\.[^'\\]*){0,999}'|\([^()\\]*(?:\\.[^()\\]*){0,999}\))"""
)
LINK_END = lazy_re(r"[ \t\n]*\)")
DEFINITION_END = lazy_re(r"[ \t]*(?:\n|$)")
LINK_LABEL = lazy_re(r"(?s)\[((?:[^\[\]\\]|\\.){0,999})\]")
ABSOLUTE_HTTP = lazy_re(r"(?i)https?://[^\s/?#]")


def markdown_links(text: str) -> list[Link]:
    """The inline links `[text](url)` with an absolute http(s) URL, in document order, each URL once. Never raises.

    R9, spec 10.4. CommonMark decides what is a link: images, code, raw HTML, autolinks and references are none.
    The title is plain text; the URL is what the document says, escapes resolved.
    >>> markdown_links("- [The *spec*](https://wal.sh/bot/): read `[me](https://x.test/)`")
    [Link(title='The spec', url='https://wal.sh/bot/')]
    """
    if "](" not in text:
        return []
    labels = reference_labels(text)
    title_by_url: dict[str, str] = {}
    for _, _, leaf in markdown_leaves(text, labels):
        for title, destination, _ in inline_links(leaf, labels):
            if ABSOLUTE_HTTP.match(destination):
                title_by_url.setdefault(destination, title)
    return [Link(title, url) for url, title in title_by_url.items()]


def reference_labels(text: str) -> set[str]:
    """The labels that link references may use: a reference is no link of R9, but breaks one around it, and may precede its definition."""
    labels: set[str] = set()
    if "]:" in text:
        for _ in markdown_leaves(text, labels):
            pass
    return labels


def markdown_leaves(text: str, labels: set[str]) -> Iterator[tuple[int, bool, str]]:
    """(level or 0, is quoted, inline text) of each heading and paragraph; labels of reference definitions are added to `labels` on the way.

    One pass, a line at a time: keep the containers that the line continues, see what it starts, then go on with the paragraph or end it.
    """
    block_start, paragraph_end = re.compile(BLOCK_START), re.compile(PARAGRAPH_END)
    containers: list[int] = []
    paragraph = bytearray()                     # UTF-8: a list of short lines would cost fifty bytes for each
    raw_end: re.Pattern[str] | None = None      # inside a code fence or raw HTML: what ends it
    bare_item = False                           # an item whose first line was empty: a second empty line ends it
    for line in io.StringIO(text + "\n\n", newline=None):       # only LF, CR and CRLF end a line; the empty one ends the last paragraph
        if "\t" in line:
            line = TABBED_MARKS.sub(lambda marks: marks[0].expandtabs(4), line, count=1)
        kept, rest = continued_containers(containers, line) if containers else (0, line)
        if raw_end and kept == len(containers):
            raw_end = None if raw_end.search(rest) else raw_end
            continue
        raw_end = None
        if bare_item and kept == len(containers) and not rest.strip(" \t\n"):
            kept -= 1
        opened: list[int] = []
        kind: str | None = None
        starts = paragraph_end if paragraph and kept == len(containers) else block_start
        while start := starts.match(rest, 0, MAX_TAG_CHARS):
            kind = start.lastgroup
            if kind not in ("quote", "item"):
                break
            kind = None
            if kept + len(opened) >= MAX_MARKDOWN_NESTING:
                break
            opened.append(QUOTE if start["quote"] else start.end())
            rest = rest[start.end():]
            starts = block_start
        if kind == "tag" and paragraph and not opened:
            kind = None

        blank = not rest.strip(" \t\n")
        if paragraph:
            if not (kind or opened or blank):   # a paragraph goes on even without its containers' marks
                paragraph += rest.lstrip(" ").encode("utf-8", "surrogatepass")
                continue
            leaf = paragraph[:-1].decode("utf-8", "surrogatepass")
            paragraph.clear()
            if leaf.startswith("["):
                leaf = leaf[link_definitions_end(leaf, labels):]
            if leaf:
                yield (0 if kind != "underline" else 1 if "=" in rest else 2), QUOTE in containers, leaf
        bare_item = bool(blank and opened and opened[-1] != QUOTE)
        containers[kept:] = opened
        if kind == "heading" and start:
            yield len(start[kind]), QUOTE in containers, rest[start.end():].strip(" \n")
        elif kind == "fence" and start:
            raw_end = lazy_re(rf"^ {{0,3}}{start[kind]}{start[kind][0]}* *$")
        elif kind and kind in HTML_ENDS:
            raw_end = None if re.search(HTML_ENDS[kind], rest) else lazy_re(HTML_ENDS[kind])
        elif not (kind or blank or rest.startswith("    ")):
            paragraph += rest.lstrip(" ").encode("utf-8", "surrogatepass")


def continued_containers(containers: list[int], rest: str) -> tuple[int, str]:
    """How many of the open containers a line continues, and what follows their marks. An empty line continues an item, but no quote."""
    blank = not rest.strip(" \t\n")
    for kept, container in enumerate(containers):
        if container != QUOTE and (blank or rest.startswith(" " * container)):
            rest = rest[container:]
        elif container == QUOTE and (mark := QUOTE_MARK.match(rest)):
            rest = rest[mark.end():]
            blank = not rest.strip(" \t\n")
        else:
            return kept, rest
    return len(containers), rest


def link_definitions_end(paragraph: str, labels: set[str]) -> int:
    """Where the `[label]: destination "title"` definitions end that a paragraph begins with; their labels are added to `labels`."""
    end = 0
    while (label := LINK_LABEL.match(paragraph, end)) and label[1].strip() and paragraph.startswith(":", label.end()):
        target = link_target(paragraph, label.end() + 1, DEFINITION_END)
        if not target:
            break
        labels.add(link_label_key(label[1]))
        end = target[1]
    return end


def link_label_key(label: str) -> str:
    return " ".join(label.casefold().split())


def link_target(text: str, start: int, closing: re.Pattern[str]) -> tuple[str, int] | None:
    """A `destination "title"` with what must close it: (the destination, escapes resolved; where all ends)."""
    opening = DESTINATION_START.match(text, start)
    if not opening:
        return None
    at, depth = opening.end(), 0
    while opening[1] is None and (part := RAW_DESTINATION_PART.match(text, at)):
        depth += (part[0] == "(") - (part[0] == ")")
        if not 0 <= depth <= MAX_DESTINATION_PARENTHESES:
            break
        at = part.end()
    if depth > 0 or closing is DEFINITION_END and at == opening.end() and opening[1] is None:
        return None
    title = LINK_TITLE.match(text, at)
    closed = title and closing.match(text, title.end()) or closing.match(text, at)
    destination = text[opening.end():at] if opening[1] is None else opening[1]
    return (ESCAPE_OR_ENTITY.sub(unescaped_mark, destination), closed.end()) if closed else None


def link_reference_end(text: str, opener: int, closer: int, labels: set[str]) -> int | None:
    """Where a reference `[text][label]`, `[label][]` or `[label]` ends; `closer` is just behind its first `]`."""
    label = LINK_LABEL.match(text, closer)
    own = label if label and label[1].strip() else LINK_LABEL.match(text, opener)
    if not own or link_label_key(own[1]) not in labels or own is not label and own.end() != closer:
        return None
    return label.end() if label else closer


def unescaped_mark(mark: re.Match[str]) -> str:
    """What a backslash escape or a character reference stands for."""
    token = mark[0]
    if token[0] == "\\":
        return token[1:]
    from html import unescape  # two thousand names: read only where a page uses one
    from html.entities import html5

    return unescape(token) if token[1] == "#" else html5.get(token[1:], token)


def inline_links(text: str, labels: set[str]) -> Iterator[tuple[str, str, str]]:
    """(title, destination, note) of the inline links of a leaf; the note is what follows a link that the leaf begins with.

    One scan; brackets are a stack, as in the algorithm that CommonMark's appendix describes.
    """
    found: list[tuple[str, str, str]] = []      # held back while an image is open: what stands in its text is no link
    openers: list[tuple[int, bool, int, int]] = []      # where, is an image, pieces before it, links before it
    pieces: list[str] = []              # plain text since the outermost open bracket
    emphasis: dict[str, int] = {}       # a run of * or _ that may open emphasis: the index of its latest piece
    dead = 0                            # openers that a link has closed inside of: links hold no links
    images = 0                          # openers that are images
    last_closings: dict[str, int] = {}
    at, last_tail = 0, text.rfind("](")
    while (openers or at <= last_tail) and (mark := (INSIDE_BRACKETS if openers else OUTSIDE_BRACKETS).search(text, at)):
        token, start = mark[0], mark.start()
        kind = token[0]
        if openers and start > at:
            pieces.append(text[at:start])
        piece, at = token, mark.end()
        if kind in "[!":
            if not openers:
                if plain := PLAIN_LINK.match(text, start):      # nearly all links: no mark inside, nothing open outside
                    at = plain.end()
                    yield " ".join(plain[1].split()), plain[2], text[at:] if start == 0 else ""
                    continue
                pieces.clear()
                dead = 0
            openers.append((start, kind == "!", len(pieces), len(found)))
            images += kind == "!"
        elif kind == "]":
            opener, is_image, pieces_before, links_before = openers.pop()
            images -= is_image
            is_dead = not is_image and len(openers) < dead
            dead = min(dead, len(openers))
            tail = link_target(text, at + 1, LINK_END) if not is_dead and text.startswith("(", at) else None
            end = tail[1] if tail else None if is_dead or not labels else link_reference_end(text, opener, at, labels)
            if end is not None:
                piece = "".join(pieces[pieces_before + 1:])
                del pieces[pieces_before:]
                at = end
                if is_image:
                    del found[links_before:]
                else:
                    if tail:
                        found.append((" ".join(piece.split()), tail[0], text[end:] if opener == 0 else ""))
                    dead = len(openers)
            if not images:
                yield from found
                found.clear()
                if dead == len(openers):        # nothing is left that could still close
                    openers.clear()
        elif kind == "`" or token in VERBATIM_ENDS:
            if closing := verbatim_closing(text, token, at, last_closings):
                piece, at = text[at:closing[0]] if kind == "`" else "", closing[1]
        elif kind == "<":
            if tag := AUTOLINK_OR_TAG.match(text, start, start + MAX_TAG_CHARS):
                piece, at = tag[1] or "", tag.end()
        elif kind in "*_":
            before, after = text[start - 1], text[at:at + 1] or " "
            opened = emphasis.get(token, -1)
            if not before.isspace() and not (kind == "_" and after.isalnum()) and openers[-1][2] < opened < len(pieces):
                piece = pieces[emphasis.pop(token)] = ""
            elif not after.isspace() and not (kind == "_" and before.isalnum()):
                emphasis[token] = len(pieces)
        elif token == "\\\n":
            piece = " "
        elif kind in "\\&":
            piece = unescaped_mark(mark)
        if openers:
            pieces.append(piece)
        if len(pieces) > MAX_LINK_TEXT_TOKENS:
            openers.clear()
            images = 0
    yield from found


def verbatim_closing(text: str, opening: str, at: int, last_closings: dict[str, int]) -> tuple[int, int] | None:
    """Start and end of what closes a code span or raw HTML that `opening` opens before `at`.

    `last_closings`, filled on the way, knows where each closing is last in the leaf: no search is in vain, however many stay open.
    """
    closing = VERBATIM_ENDS.get(opening, opening)
    if closing not in last_closings:
        runs = {run[0]: run.start() for run in BACKTICK_RUN.finditer(text)} if closing == opening else {closing: text.rfind(closing)}
        last_closings.update({closing: -1, **runs})
    if last_closings[closing] < at:
        return None
    if closing == opening:
        return next(run.span() for run in BACKTICK_RUN.finditer(text, at) if run[0] == opening)
    return text.index(closing, at), text.index(closing, at) + len(closing)


# 10b. llms.txt
def parse_llms_txt(text: str, base_url: str = "") -> LlmsTxt:
    """An llms.txt: its H1, its quoted summary, and its links, each with the H2 it stands under ("" before the first). Never raises.

    Relative URLs are resolved against `base_url`; what is no http(s) URL then is left out. A note is the text behind `[title](url):`.
    >>> parse_llms_txt("# Site\\n> Short.\\n## Docs\\n- [A](/a.md): first", "https://x.test/llms.txt").links
    [LlmsLink(section='Docs', title='A', url='https://x.test/a.md', note='first')]
    """
    title = summary = section = ""
    links: list[LlmsLink] = []
    text = text.removeprefix("\ufeff")
    labels = reference_labels(text)
    for level, quoted, leaf in markdown_leaves(text, labels):
        words = " ".join(leaf.split())
        if level:
            words = re.sub(r"(?:^| )#+$", "", words)
            title, section = (title or words if level == 1 else title), (words if level == 2 else section)
            continue
        if quoted:
            summary = summary or words
        for name, destination, note in inline_links(leaf, labels):
            url = resolved_http_url(base_url, destination)
            if url:
                links.append(LlmsLink(section, name, url, " ".join(note.lstrip(" :\n").split())))
    return LlmsTxt(title, summary, links)


def resolved_http_url(base_url: str, reference: str) -> str:
    """The absolute http(s) URL that a document's reference means, or ""."""
    try:
        url = resolve_url(base_url, reference.strip()) if base_url else reference.strip()
    except ValueError:
        return ""
    return url if ABSOLUTE_HTTP.match(url) and len(url) <= MAX_HEAD_VALUE_CHARS else ""


# 10c. A page's head. A scanner of our own: html.parser's time and tokens on hostile pages differ between patch releases.
RAW_TEXT_ELEMENTS = ("title", "script", "style", "noscript", "template", "noframes")
HEAD_ELEMENTS = frozenset(("html", "head", "meta", "link", "base", "basefont", "bgsound", *RAW_TEXT_ELEMENTS))
HEAD_ENDS = ("/head", "/body", "/html")
HEAD_MARK = lazy_re(r"(?s)\s*(?:<(/?[A-Za-z][^\s/>]*)|<!(?=--).*?-->|<!(?!--)[^>]*>|<\?[^>]*>)")   # anything else is the body
HTML_ATTRIBUTE = lazy_re(r"""[\s/=]*([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*)?)?""")
HTML_TAG_END = lazy_re(r"[\s/=]*>")
FEED_TYPES = frozenset(("application/rss+xml", "application/atom+xml", "application/feed+json"))


def page_metadata(html: str | bytes, base_url: str = "") -> PageMetadata:
    """What a page says of itself in its <head>; what stands in the body is ignored. Never raises.

    R9: generic, no selectors. URLs are absolute (`base_url`, then <base href>); of two values the first holds.
    <meta name="walsh-research"> replaces <meta name="robots">.
    >>> page_metadata("<html lang=en><title>A &amp; B</title><link rel=canonical href=/a><p>", "https://x.test/").canonical
    'https://x.test/a'
    """
    text = decode_body(html, "text/html") if isinstance(html, bytes) else html
    first: dict[str, str] = {}          # the first value of each single thing
    robots: dict[str, list[str]] = {}   # directives by the name of their <meta>
    feeds: list[tuple[str, str]] = []
    for name, attributes, content in head_elements(text[:MAX_HEAD_CHARS]):
        href, meta_name = attributes.get("href"), attributes.get("name", "").lower() if name == "meta" else ""
        if name == "title":
            first.setdefault("title", content)
        elif name == "html":
            first.setdefault("language", attributes.get("lang") or attributes.get("xml:lang", ""))
        elif name == "base" and href is not None:
            first.setdefault("base", href)
        elif meta_name == "description":
            first.setdefault("description", attributes.get("content", ""))
        elif meta_name in ("robots", UA_TOKEN.lower()):
            robots.setdefault(meta_name, []).extend(directive for _, directive in robots_tag_directives(attributes.get("content", "")))
        elif name == "link" and href is not None:
            relations = attributes.get("rel", "").lower().split()
            if "canonical" in relations:
                first.setdefault("canonical", href)
            if "alternate" in relations and media_type_of(attributes.get("type", "")) in FEED_TYPES and len(feeds) < MAX_HEAD_LISTED:
                feeds.append((attributes.get("title", ""), href))
    base = resolved_http_url(base_url, first.get("base", "")) or base_url
    directives = robots.get(UA_TOKEN.lower(), robots.get("robots", []))
    advertised = [Link(title, resolved_http_url(base, href)) for title, href in feeds]
    return PageMetadata(
        title=first.get("title", ""), description=first.get("description", ""), language=first.get("language", ""),
        canonical=resolved_http_url(base, first["canonical"]) if first.get("canonical") else "",
        robots=tuple(dict.fromkeys(directives))[:MAX_HEAD_LISTED], feeds=tuple(feed for feed in advertised if feed.url),
    )


def head_elements(text: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """(name, attributes, raw text) of each start tag until the head is over: its end tag, or the first thing that cannot stand in it."""
    at = len(text) - len(text.removeprefix("\ufeff"))
    while mark := HEAD_MARK.match(text, at):
        name, at = (mark[1] or "").lower(), mark.end()
        if not name:
            continue
        if name not in HEAD_ELEMENTS and name[0] != "/" or name in HEAD_ENDS:
            return
        attributes: dict[str, str] = {}
        while attribute := HTML_ATTRIBUTE.match(text, at):
            value = attribute[2] or ""
            if len(attributes) < MAX_HEAD_LISTED:
                attributes.setdefault(attribute[1].lower(), html_text(value[1:-1] if value[:1] in ('"', "'") else value))
            at = attribute.end()
        tag_end = HTML_TAG_END.match(text, at)
        if not tag_end:
            return
        at, content = tag_end.end(), ""
        if name in RAW_TEXT_ELEMENTS:
            close = lazy_re(rf"(?i:</{name})(?=[\s/>])").search(text, at)
            if not close:
                return
            content, at = html_text(text[at:close.start()]), close.start()
        yield name, attributes, content


def html_text(value: str) -> str:
    """Character references resolved, white space collapsed, no longer than a head's value may be."""
    value = value[:MAX_HEAD_VALUE_CHARS]
    if "&" in value:
        from html import unescape  # two thousand names: read only where a page uses one

        value = unescape(value)
    return " ".join(value.split())


# 10d. Directives that bind what is done with a page
ROBOTS_WARNINGS = {
    "noindex": "must not be indexed", "none": "must not be indexed, and its links must not be followed",
    "nofollow": "its links must not be followed", "noimageindex": "its images must not be indexed",
    "noarchive": "no copy of it must be kept or shown", "nocache": "no copy of it must be kept or shown",
    "nosnippet": "no extract of it must be shown", "notranslate": "no translation of it must be offered",
    "noai": "must not be used for machine learning", "noimageai": "its images must not be used for machine learning",
}
ROBOTS_AGENT = lazy_re(rf"(?!(?:unavailable_after|max-[a-z]+-?[a-z]*|{'|'.join(ROBOTS_WARNINGS)})\s*:)([^\s:,]+)\s*:\s*")


def robots_tag_directives(value: str) -> Iterator[tuple[str, str]]:
    """(agent, directive) pairs of an X-Robots-Tag or of a robots <meta>, lower-case; an agent speaks for all that follows, "" is everybody.

    >>> list(robots_tag_directives("noarchive, otherbot: noindex, unavailable_after: Wed, 25 Jun 2030 15:00:00 GMT"))
    [('', 'noarchive'), ('otherbot', 'noindex'), ('otherbot', 'unavailable_after: wed, 25 jun 2030 15:00:00 gmt')]
    """
    agent = ""
    items = iter(value[:MAX_HEAD_VALUE_CHARS].lower().split(","))
    for item in items:
        directive = " ".join(item.split())
        prefix = ROBOTS_AGENT.match(directive)
        if prefix:
            agent = "" if prefix[1] == "*" else prefix[1].split("/")[0]
            directive = directive[prefix.end():]
        if re.match(r"unavailable_after ?: ?[a-z]+$", directive):       # RFC 1123 puts a comma behind the weekday
            directive = f"{directive}, {' '.join(next(items, '').split())}"
        name, colon, setting = directive.partition(":")
        yield agent, f"{name.strip()}: {setting.strip()}" if colon else directive


def robots_directives(headers: Iterable[tuple[str, str]], metadata: PageMetadata | None, now: float | None) -> tuple[list[str], list[str]]:
    """(the directives that bind us, once each in order; a line of warning for each that forbids something).

    X-Robots-Tag, then the page's own. What a header addresses to us replaces what it says to all.
    `now` in Unix seconds, or None where it is not known whether an `unavailable_after` has passed.
    """
    by_agent: dict[str, list[str]] = {"": [], UA_TOKEN.lower(): []}
    for header, value in headers:
        for agent, directive in robots_tag_directives(value) if header.lower() == "x-robots-tag" else ():
            by_agent.get(agent, []).append(directive)
    own = (by_agent[UA_TOKEN.lower()] or by_agent[""]) + (list(metadata.robots) if metadata else [])
    directives = [directive for directive in dict.fromkeys(own) if directive and directive.isprintable()][:MAX_HEAD_LISTED]
    warnings = [f"{directive}: {ROBOTS_WARNINGS[directive]}" for directive in directives if directive in ROBOTS_WARNINGS]
    for directive in directives:
        name, _, date = directive.partition(": ")
        moment = directive_date_seconds(date) if name == "unavailable_after" else math.inf
        if moment is None:
            warnings.append(f"{directive}: not a date, want one as in 25 Jun 2030 15:00:00 GMT")
        elif now is not None and moment <= now:
            warnings.append(f"{directive}: has passed, the page should no longer be used")
    return directives, warnings


def directive_date_seconds(text: str) -> float | None:
    """Unix seconds of an `unavailable_after` date: RFC 822 with any named zone, RFC 850 or ISO 8601; UTC where it names none."""
    from calendar import timegm
    from datetime import datetime
    from email.utils import mktime_tz, parsedate_tz

    text = text[:64].strip().upper()
    try:
        if re.match(r"[0-9]{4}-", text):
            return float(timegm(datetime.fromisoformat(re.sub("Z$", "+00:00", text)).utctimetuple()))
        parts = parsedate_tz(text)
        return float(mktime_tz(parts)) if parts else None
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


# 10e. What a body is, and in which letters
# A codec, and Python's names for what the web means by it (its latin-1 is windows-1252). None that does more: zlib, punycode, utf-7.
CODEC_NAMES = {
    "utf-8": "utf_8 unicode_1_1_utf_8", "utf-16-le": "utf_16 utf_16_le ucs_2 unicode", "utf-16-be": "utf_16_be unicodefffe",
    "utf-32-le": "utf_32 utf_32_le", "utf-32-be": "utf_32_be", "gb18030": "gb2312 gb_2312_80 csgb2312 gbk", "big5hkscs": "big5 cn_big5",
    "cp1252": "ascii latin_1 iso88591", "cp1254": "iso8859_9", "cp874": "tis_620 iso8859_11", "cp932": "shift_jis cp31j",
    "cp949": "euc_kr ksc_5601", "koi8_r": "koi8", "koi8_u": "koi8_ru", "mac_roman": "mac", "iso8859_8": "iso_8859_8_i",
}
PLAIN_CODECS = (                # the web and Python agree
    "cp866 cp1250 cp1251 cp1253 cp1255 cp1256 cp1257 cp1258 iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_10 "
    "iso8859_13 iso8859_14 iso8859_15 iso8859_16 mac_cyrillic euc_jp iso2022_jp"
)
CODEC_BY_NAME = {name: codec for codec, names in CODEC_NAMES.items() for name in (codec, *names.split())}
CODEC_BY_NAME.update((codec, codec) for codec in PLAIN_CODECS.split())
BYTE_ORDER_MARKS = (            # UTF-32's little-endian mark begins with UTF-16's
    (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe\0\0", "utf-32-le"), (b"\0\0\xfe\xff", "utf-32-be"), (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
META_CHARSET = lazy_re(rb"""(?i)<meta\s[^>]{0,256}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""")
CHARSET_PARAMETER = lazy_re(r"""(?i);\s*charset\s*=\s*["']?([^\s"';,]*)""")
UNREAD_TYPE = lazy_re(       # R6: sub-resources, archives, executables; PDF is a document and is read
    r"(?:image|font|audio|video)/|text/(?:css|javascript|ecmascript)$|(?:application|binary)/(?:x-)?(?:javascript|ecmascript|wasm|binary|"
    r"octet-stream|font-\w+|vnd\.ms-fontobject|zip|zip-compressed|gzip|bzip2?|xz|zstd|g?tar|7z-compressed|(?:vnd\.)?rar|rar-compressed|"
    r"java-archive|iso9660-image|apple-diskimage|debian-package|vnd\.debian\.binary-package|rpm|redhat-package-manager|"
    r"vnd\.android\.package-archive|msdownload|msdos-program|msi|vnd\.microsoft\.portable-executable|executable|sharedlib|mach-binary|elf|"
    r"shockwave-flash|ogg|mp4|(?:vnd\.apple\.)?mpegurl|dash\+xml)$"
)
MEDIA_KINDS = (                 # the first that fits
    ("markdown", lazy_re(r".*markdown")),                            # spec 10.4: "the Content-Type contains markdown"
    ("html", lazy_re(r"text/html$|application/xhtml\+xml$")),
    ("feed", lazy_re(r"application/(?:rss|atom|rdf)\+xml$|application/feed\+json$|text/(?:rss|atom)\+?xml$")),
    ("json", lazy_re(r"(?:application|text)/json$|[^/]+/[^/]+\+json$")),
    ("xml", lazy_re(r"(?:application|text)/xml$|[^/]+/[^/]+\+xml$")),
    ("text", lazy_re(r"text/")),
)


def media_type_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def content_type_of(headers: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """(media type, charset) of the first Content-Type, lower-case; "" where it names none."""
    value = next((value for name, value in headers if name.lower() == "content-type"), "")
    charset = CHARSET_PARAMETER.search(value)
    return media_type_of(value), charset[1].lower() if charset else ""


def charset_codec(label: str) -> str | None:
    """The Python codec for a charset's name on the web, from a list of those that only map letters; None for any other.

    >>> charset_codec("GB2312"), charset_codec("latin1"), charset_codec("zlib")
    ('gb18030', 'cp1252', None)
    """
    from encodings.aliases import aliases

    name = re.sub("[^a-z0-9]+", "_", label[:64].lower().strip(" \t\r\n\"'")).removeprefix("x_").replace("windows_", "cp")
    return CODEC_BY_NAME.get(name) or CODEC_BY_NAME.get(aliases.get(name, ""))


def decode_body(body: bytes, content_type_header: str) -> str:
    """The text of a body: charset of the header, byte order mark, <meta charset> (HTML), then UTF-8 with U+FFFD. Never raises."""
    media_type, charset = content_type_of([("content-type", content_type_header)])
    marked = next((codec for mark, codec in BYTE_ORDER_MARKS if body.startswith(mark)), None)
    codec = charset_codec(charset) or marked
    if codec and marked and codec[:6] == marked[:6]:    # "utf-16" without a byte order: its mark tells
        codec = marked
    elif not codec and media_kind(media_type) == "html" and (meta := META_CHARSET.search(body[:1024])):
        codec = charset_codec(meta[1].decode("ascii")) or "utf-8"
        codec = "utf-8" if codec.startswith("utf-") else codec      # it was read as ASCII, so it is no UTF-16
    return body.decode(codec or "utf-8", "replace").removeprefix("\ufeff")


def is_unread_type(media_type: str) -> bool:
    """R6: is this a kind of body that is never read (image, script, stylesheet, font, sound, film, archive, binary)?"""
    return UNREAD_TYPE.match(media_type_of(media_type)) is not None


def media_kind(media_type: str) -> str:
    """Which reading fits a media type: "markdown", "html", "feed", "json", "xml", "text" or "other"."""
    media_type = media_type_of(media_type)
    return next((kind for kind, pattern in MEDIA_KINDS if pattern.match(media_type)), "other")


# --- Feeds and sitemaps   R9: titles, links, ids and dates; never the articles ---
# Both are XML that lists entries, so one walker serves both: a table says which roots, entries and fields there are.

FEED_NAMESPACES = {             # what stands before an element's name for us, whatever prefix the document chose
    **dict.fromkeys(("http://www.w3.org/2005/atom", "http://purl.org/atom/ns#", "http://purl.org/rss/1.0/",
                     "http://my.netscape.com/rdf/simple/0.9/", "http://channel.netscape.com/rdf/simple/0.9/",
                     "http://backend.userland.com/rss2"), ""), "http://www.w3.org/1999/02/22-rdf-syntax-ns#": "rdf:",
    "http://purl.org/dc/elements/1.1/": "dc:", "http://purl.org/dc/terms/": "dcterms:",
}
FEED_PREFIXES = {"atom": "", "atom10": "", "a10": "", "rss": "", "rdf": "rdf:", "dc": "dc:", "dcterms": "dcterms:"}    # where undeclared
FEED_ROOTS = {**dict.fromkeys(("rss", "rdf:rdf", "rdf", "channel"), ("rss", "item")), "feed": ("atom", "entry")}     # kind, entry
SITEMAP_ROOTS = {"urlset": ("urlset", "url"), "sitemapindex": ("index", "sitemap")}
ENTRY_FIELDS = {                # elements that are read, and the field that each fills
    "title": "title", "dc:title": "dc:title", "link": "link", "guid": "id", "id": "id",
    "published": "published", "pubdate": "published", "issued": "published", "dcterms:issued": "published", "dc:date": "dc:date",
    "created": "created", "dcterms:created": "created", "updated": "updated", "modified": "updated", "dcterms:modified": "updated",
    "loc": "link", "lastmod": "lastmod",
}
FIELD_NAMES = frozenset(ENTRY_FIELDS.values())
JSON_FIELDS = {
    "title": ("title",), "alternate": ("url", "external_url"), "id": ("id",),
    "published": ("date_published",), "updated": ("date_modified",)}
# Which field tells most. A link without rel is "alternate" (RFC 4287 4.2.7.2).
FEED_TITLES = ("title", "dc:title")
FEED_LINKS = ("link", "alternate", "alternate of another type", "permalink", "self", "related", "via", "rdf:about")
FEED_IDS = ("id", "opaque id", "rdf:about")
FEED_DATES = ("published", "dc:date", "created", "updated")
PLAIN_FEED_URL = lazy_re(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9_.~!$&'()*+,;=:@%?/-]*")       # nothing to resolve but dots
UNPRINTABLE_RUN = lazy_re(r"[\x00-\x20\x7f-\x9f]+")

# What a decision does not need is compiled, and kept by re, where a document is read: it would be a third of the import.
XML_ENCODING = rb"\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*[\"']([\w.:-]{1,40})"
PROLOG_TOKEN = (                # 1: the root
    rb"(?is)\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<!DOCTYPE|[\[\]>]|<([a-z_:\x80-\xff])")
DOCTYPE_STEPS = {(0, b"<!DOCTYPE"): 1, (1, b"["): 2, (2, b"]"): 1, (1, b">"): 0}    # 0: outside, 1: inside, 2: in its subset
XML_SLIP = (                    # 1: what may hold anything; else a numeric reference, a bare & or <
    rb"(?s)(<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z))|&#(?:[0-9]{1,7}|[xX][0-9a-fA-F]{1,6});"
    rb"|&(?![A-Za-z][A-Za-z0-9]{0,31};)|<(?![A-Za-z_:/!?\x80-\xff])")
XML_FORBIDDEN = bytes(set(range(32)) - set(b"\t\n\r"))
BREAK_TAG = r"(?i)</?(?:br|p|div|li|h[1-6])\b[^<>]*>"
TITLE_TAGS = {                  # by the type of the title; in RSS only known tags are some: `List<String>` is a title
    "rss": r"(?i)</?(?:a|abbr|acronym|b|big|cite|code|del|em|font|i|img|ins|kbd|mark|q|s|samp|small|span|strike|strong"
           r"|sub|sup|tt|u|var|wbr)\b[^<>]*>",
    "html": r"(?s)</?[A-Za-z][^<>]*>|<!--.*?(?:-->|\Z)",    # RFC 4287 3.1.1; any other type is text, and has no markup
}
TITLE_TAGS["text/html"] = TITLE_TAGS["html"]                # Atom 0.3

ZONE_MINUTES = {                # RFC 822 5.1, and names that publishers use; any other name counts as UTC (RFC 5322 4.3)
    name: 60 * hours for hours, names in {
        -12: "m", -10: "hst", -9: "akst", -8: "pst pt akdt", -7: "mst pdt mt", -6: "cst mdt ct", -5: "est cdt et", -4: "ast edt", -3: "adt",
        -1: "a", 1: "n bst cet met west", 2: "cest mest eet", 3: "eest msk", 9: "jst kst", 10: "aest", 11: "aedt", 12: "y nzst", 13: "nzdt",
    }.items() for name in names.split()}
DATE_TIME = r"(\d\d?):?(\d\d)(?::?(\d\d)(?:[.,]\d+)?)?"
DATE_ZONE = r"\s*(?:(?:gmt|utc?)?([+-])(\d\d?):?(\d\d)?(?:\s*\([\w\s]*\))?|([a-z]{1,5}))?"
DATE_WEEKDAY, DATE_DAY, DATE_MONTH = r"(?a)(?:[a-z]+[.,]?\s*)??", r"(\d\d?)(?:st|nd|rd|th)?", "([a-z]{3,9})"
UTC_DATE = (                    # nine in ten, in days that every month has: RFC 822, or W3C-DTF as it is wanted
    r"(?a)[A-Z][a-z]{2}, (0[1-9]|1\d|2[0-8]) ([A-Z][a-z]{2}) ([12]\d{3}) ((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d) (?:GMT|[+-]0000)"
    r"|[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")
FEED_DATE_FORMS = (             # and the order of day, month and year; hour, minute, second and zone follow
    (rf"{DATE_WEEKDAY}{DATE_DAY}[\s-]+{DATE_MONTH}[.,\s-]+(\d{{4}}|\d\d)(?:[\s,t]+{DATE_TIME}{DATE_ZONE})?", (0, 1, 2)),    # RFC 822
    (rf"(?a)(\d{{4}})(?:[-/]?(\d\d)(?:[-/]?(\d\d)(?:[t\s]\s*{DATE_TIME})?{DATE_ZONE})?)?", (2, 1, 0)),     # W3C-DTF, RFC 3339
    (rf"{DATE_WEEKDAY}{DATE_MONTH}\.?\s+{DATE_DAY}[\s,]+(\d{{4}})(?:[\s,t]+{DATE_TIME}{DATE_ZONE})?", (1, 0, 2)),     # January 1st, 2004
    (rf"{DATE_WEEKDAY}{DATE_MONTH}\s+{DATE_DAY}\s+(?=.*?(\d{{4}})\Z){DATE_TIME}{DATE_ZONE}\s+\d{{4}}", (1, 0, 2)),    # asctime
)


def feed_date(text: str) -> str | None:
    """A date of RFC 822, W3C-DTF or a common misspelling as ISO 8601 in UTC; without a zone it counts as UTC. None where it is no date.

    >>> feed_date("Thu, 01 Jan 2004 19:48:21 EST")
    '2004-01-02T00:48:21Z'
    """
    text = text.strip()[:MAX_DATE_LENGTH]
    if simple := re.fullmatch(UTC_DATE, text):
        day, month, year, time_of_day = simple.groups()
        if not month:
            return text
        if month.lower() in MONTH_NAMES:
            return f"{year}-{MONTH_NAMES.index(month.lower()) + 1:02}-{day}T{time_of_day}Z"
    text = text.lower()
    for form, order in FEED_DATE_FORMS:
        if found := re.fullmatch(form, text):
            break
    else:
        return None
    from datetime import datetime, timedelta  # a decision needs no calendar

    *date, hour, minute, second, sign, zone_hours, zone_minutes, zone = found.groups()
    day, month, year = (date[place] for place in order)
    century = 0 if len(year) == 4 else 2000 if year < "50" else 1900        # RFC 5322 4.3
    minutes = int(zone_hours) * 60 + int(zone_minutes or 0) if sign else ZONE_MINUTES.get(zone, 0)
    try:
        month_number = 1 if not month else int(month) if month.isdigit() else MONTH_NAMES.index(month[:3]) + 1
        moment = datetime(century + int(year), month_number, int(day or 1), int(hour or 0), int(minute or 0), min(int(second or 0), 59))
        return (moment - timedelta(0, (-60 if sign == "-" else 60) * minutes) if minutes else moment).isoformat() + "Z"    # :60 leaps
    except (ValueError, OverflowError):
        return None


def one_line(text: str) -> str:
    return text.strip(" ") if text.isprintable() and "  " not in text else UNPRINTABLE_RUN.sub(" ", text).strip(" ")


def feed_title(text: str, form: str) -> str:
    """One line of text, whose markup is that of `form`: "rss", "html" or none."""
    text = text[:MAX_FEED_TEXT]
    if form in TITLE_TAGS and ("&" in text or "<" in text):
        from html import unescape  # its table of entities is large

        text = unescape(re.sub(TITLE_TAGS[form], "", re.sub(BREAK_TAG, " ", text)))
    return one_line(text)


def feed_url(base: str, reference: str) -> str:
    """The absolute URL; as it stands where there is no base; "" where it is none, so that one bad URL does not lose the feed."""
    reference = reference.strip()
    if len(reference) > MAX_FEED_TEXT:
        return ""
    if not base or not reference or PLAIN_FEED_URL.fullmatch(reference) and "/." not in reference:  # nine in ten: resolving is slow
        return one_line(reference)
    try:
        return resolve_url(base, reference)
    except ValueError:
        return ""


def first_field(fields: dict[str, str], names: Sequence[str]) -> str:
    return next(filter(None, map(fields.get, names)), "")


def feed_item(fields: dict[str, str], kind: str) -> FeedItem:
    identifier = fields.get("id", "")
    if "link" not in fields and identifier.lstrip().startswith(("http://", "https://")):
        fields["permalink"] = identifier
    title = feed_title(first_field(fields, FEED_TITLES), "rss" if kind == "rss" else fields.get("type", ""))
    published = next(filter(None, (feed_date(fields[name]) for name in FEED_DATES if name in fields)), None)
    url = feed_url(fields["base"], first_field(fields, FEED_LINKS))
    return FeedItem(title, url, one_line(first_field(fields, FEED_IDS)[:MAX_FEED_TEXT]), published)


def gathered(entries: Iterable[Any], room: int) -> tuple[list[Any], str]:
    """The entries that name anything, and what broke them off. `room`: characters of URLs, since a long base makes short links long."""
    kept: list[Any] = []
    try:
        for entry in entries:
            room -= len(entry.url)
            if room < 0 or len(kept) == MAX_LISTED_ENTRIES:
                return kept, f"cut after {len(kept)} entries"
            if any(entry):
                kept.append(entry)
    except ValueError as error:
        return kept, str(error)
    return kept, ""


# What a document is written in, and how it is mended.
def document_codecs(body: bytes, content_type: str = "") -> list[str]:
    """The codecs to try: by the byte order mark or NULs alone, else by the header, the XML declaration, UTF-8 (RFC 7303 3)."""
    marked = next((codec for mark, codec in BYTE_ORDER_MARKS if body.startswith(mark)), "")
    if not marked and b"\0" in body[:2]:
        marked = "utf-16-le" if body[1:2] == b"\0" else "utf-16-be"
    if marked:
        return [marked]
    declaration = re.match(XML_ENCODING, body)
    labels = content_type_of([("content-type", content_type)])[1], declaration[1].decode("latin-1") if declaration else "", "utf-8"
    return [codec for codec in map(charset_codec, labels) if codec and not codec.startswith(("utf-16", "utf-32"))]


def feed_document(body: bytes, content_type: str) -> bytes:
    """The body as UTF-8, without what may stand before its first character."""
    codecs = document_codecs(body, content_type)
    text = next((text for text in (body.decode(codec, "replace") for codec in codecs) if "\ufffd" not in text), None)
    if text is None:        # a few torn characters in UTF-8, or the Latin text of an editor that never heard of it
        latin = codecs[0] == "utf-8" and not re.search(rb"[\xc2-\xf4][\x80-\xbf]", body)
        text = body.decode("cp1252" if latin else codecs[0], "replace")
    return text.lstrip("\ufeff \t\r\n\0").encode()


def xml_without_prolog(document: bytes) -> bytes:
    """The root element and what follows it, on the lines where they were. Without a DOCTYPE there is no entity to expand, by any expat."""
    state = 0
    for token in re.finditer(PROLOG_TOKEN, document):
        if token[1] and state == 0:
            return b"\n" * document.count(b"\n", 0, token.start()) + document[token.start():]
        state = DOCTYPE_STEPS.get((state, token[0].upper()), state)
    return b""


def repaired_xml(document: bytes) -> bytes:
    """Bare & and <, impossible references and control characters mended: the slips that need not lose the rest of a document."""
    from html import escape, unescape
    repaired, end = bytearray(), 0      # not sub(): joining a million pieces takes 80 bytes for each
    for slip in re.finditer(XML_SLIP, document):
        if not slip[1]:
            repaired += document[end:slip.start()] + escape(unescape(slip[0].decode())).encode("utf-8", "replace")
            end = slip.end()
    repaired += document[end:]
    return bytes(repaired.translate(None, XML_FORBIDDEN).replace(b"\xef\xbf\xbe", b"").replace(b"\xef\xbf\xbf", b""))


def xml_entries(pieces: Iterable[bytes], roots: dict[str, tuple[str, str]], head: dict[str, str], base: str) -> Iterator[dict[str, str]]:
    """The fields of each entry of a document in UTF-8, as soon as it is complete; "base" is among them.

    `head` gets the "kind", and the fields of the whole. ValueError, with the position, where the document breaks off or passes a bound.
    """
    from html import unescape
    from xml.parsers import expat  # C, and nothing else of the xml package

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.UseForeignDTD(True)          # &nbsp; without a DTD is then skipped, not an error
    complete: list[dict[str, str]] = []
    fields = head                       # or those of the entry that is open
    prefixes, names = dict(FEED_PREFIXES), {}       # type: dict[str, str], dict[str, str]
    bases = [base if len(base) <= MAX_BASE_LENGTH else ""]      # of the open containers: root, channel, entry
    depth, child_depth = 0, 1           # of the open element; of what the innermost container holds
    entry = field = ""                  # what an entry is called here; the field that is open
    text: list[str] = []
    collect = text.append

    def stop(reason: str) -> None:
        raise ValueError(f"{reason}: line {parser.CurrentLineNumber}")

    def based(attributes: dict[str, str]) -> str:
        base = feed_url(bases[-1], attributes.get("xml:base", ""))
        return base if 0 < len(base) <= MAX_BASE_LENGTH else bases[-1]

    def open_container(attributes: dict[str, str]) -> None:
        nonlocal child_depth
        child_depth += 1
        fields["base"] = based(attributes) if attributes else bases[-1]
        bases.append(fields["base"])
        for attribute, value in attributes.items():
            if attribute.startswith("xmlns:") and value.lower() in FEED_NAMESPACES:
                prefixes[attribute[6:].lower()] = FEED_NAMESPACES[value.lower()]
                names.clear()

    def name_of(element: str) -> str:
        prefix, colon, local = element.lower().rpartition(":")
        return (prefixes.get(prefix, prefix + colon) if colon else "") + local

    def open_root(element: str, attributes: dict[str, str]) -> None:
        nonlocal entry
        open_container(attributes)
        name = name_of(element)
        if name not in roots and ":" in name:       # of a namespace that nobody knows
            prefix, _, name = name.rpartition(":")
            prefixes[prefix] = ""
        if name not in roots:
            stop(f"found <{element[:40]}>, want {' or '.join(roots)}")
        head["kind"], entry = roots[name]

    def read_attributes(name: str, attributes: dict[str, str]) -> str:
        """The field that the element's text fills."""
        if name == "title":
            fields.setdefault("type", attributes.get("type", "").lower())
        elif name == "id" and attributes.get("isPermaLink", "true").strip().lower() != "true":
            return "opaque id"
        elif name == "link" and "href" in attributes:
            rel = attributes.get("rel", "").strip().lower().rpartition("/")[2] or "alternate"       # the registry's URI form, too
            if rel == "alternate" and "html" not in attributes.get("type", "html").lower():
                rel = "alternate of another type"
            if rel in FEED_LINKS:
                fields.setdefault(rel, feed_url(based(attributes), attributes["href"]) if "xml:base" in attributes else attributes["href"])
            return ""
        return name

    def start(element: str, attributes: dict[str, str]) -> None:
        nonlocal depth, fields, field
        depth += 1
        if depth != child_depth:        # inside a field, an image, a source, somebody's extension
            if depth > MAX_XML_DEPTH:
                stop(f"elements nested deeper than {MAX_XML_DEPTH}")
            return
        if depth == 1:
            return open_root(element, attributes)
        name = names.get(element)
        if name is None:
            name = name_of(element)
            name = names[element] = "entry" if name == entry else name if name == "channel" else ENTRY_FIELDS.get(name, "")
        if name == "entry" and fields is head:
            fields = {"rdf:about": attributes["rdf:about"]} if "rdf:about" in attributes else {}
            open_container(attributes)
        elif name == "channel" and depth == 2:
            open_container(attributes)
        elif name in FIELD_NAMES:
            field = read_attributes(name, attributes) if attributes else name
            if field:
                parser.CharacterDataHandler = collect

    def end(element: str) -> None:
        nonlocal depth, child_depth, fields, field
        if depth == child_depth:
            if field:
                parser.CharacterDataHandler = None
                if text:
                    fields.setdefault(field, "".join(text))
                    text.clear()
                field = ""
        elif depth < child_depth:       # a container
            child_depth -= 1
            bases.pop()
            if fields is not head:
                complete.append(fields)
                fields = head
        depth -= 1

    def skipped(entity: str, is_parameter: bool) -> None:
        if field and not is_parameter:
            collect(unescape(f"&{entity};"))

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.SkippedEntityHandler, parser.EntityDeclHandler = skipped, lambda *entity: stop("a document that declares entities")
    given, trouble = 0, ""
    for piece in itertools.chain(filter(None, pieces), (b"",)):
        try:
            parser.Parse(piece, not piece)
            given += len(piece)
            if len(parser.intern) > MAX_XML_NAMES:
                stop(f"more than {MAX_XML_NAMES} different names")
            if piece and given - parser.CurrentByteIndex > MAX_XML_TOKEN_BYTES:
                stop(f"a tag of more than {MAX_XML_TOKEN_BYTES} bytes")
        except (ValueError, expat.ExpatError) as error:
            trouble = str(error)
        yield from complete
        complete.clear()
        if trouble:
            raise ValueError(trouble)
        if text:
            text[:] = ["".join(text)[:XML_PIECE_BYTES]]


def xml_feed(document: bytes, base_url: str) -> Feed:
    """What broke it is in `.warning`; where no feed began, `.kind` is ""."""
    head = {"kind": "", "base": ""}
    pieces = (document[at:at + XML_PIECE_BYTES] for at in range(0, len(document), XML_PIECE_BYTES))
    found = xml_entries(pieces, FEED_ROOTS, head, base_url)
    items, warning = gathered((feed_item(fields, head["kind"]) for fields in found), 4 * len(document) + XML_PIECE_BYTES)
    site = feed_url(head["base"], first_field(head, FEED_LINKS[:3]))
    return Feed(head["kind"], feed_item(head, head["kind"]).title, site, items, warning)


def json_feed(document: bytes, base_url: str) -> Feed:
    if len(document) > MAX_JSON_FEED_BYTES:
        raise ValueError(f"JSON feed of {len(document)} bytes, want at most {MAX_JSON_FEED_BYTES}")
    data = parse_json(document, "JSON feed")
    if not isinstance(data, dict) or "jsonfeed.org/version/" not in str(data.get("version")):
        raise ValueError("line 1, column 0: found JSON whose version is no JSON Feed's, want https://jsonfeed.org/version/1 or 1.1")
    base = base_url if len(base_url) <= MAX_BASE_LENGTH else ""

    def text(holder: dict[str, Any], *keys: str) -> str:
        for value in map(holder.get, keys):
            if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "":    # numeric ids are coerced
                return str(value).encode("utf-8", "replace").decode()       # a lone surrogate cannot be printed
        return ""

    def item(entry: dict[str, Any]) -> FeedItem:
        fields = {field: text(entry, *keys) for field, keys in JSON_FIELDS.items()}
        return feed_item({**fields, "base": base}, "json")

    listed: Any = data.get("items")
    items, warning = gathered((item(entry) for entry in (listed if isinstance(listed, list) else ()) if isinstance(entry, dict)),
                              4 * len(document) + XML_PIECE_BYTES)
    return Feed("json", one_line(text(data, "title")[:MAX_FEED_TEXT]), feed_url(base, text(data, "home_page_url")), items, warning)


def parse_feed(body: bytes | str, content_type: str = "", base_url: str = "") -> Feed:
    """A feed of RSS 0.9x, 1.0 or 2.0, Atom 0.3 or 1.0, or JSON Feed 1.x: what it lists, in its order (R9).

    Titles are text, links absolute where `base_url` or the feed gives a base, dates ISO 8601 in UTC or None. A feed that breaks off
    gives the items before the break, and `.warning` says where. ValueError, with the position, where no feed began. Linear time; no
    entity of a DTD is expanded.

    >>> parse_feed("<rss><channel><item><title>AT&amp;T</title><link>a</link></item></channel></rss>", base_url="https://wal.sh/").items[0]
    FeedItem(title='AT&T', url='https://wal.sh/a', id='', published=None)
    """
    document = feed_document(marked_utf8(body), content_type)
    if document[:1] == b"{":
        return json_feed(document, base_url)
    document = xml_without_prolog(document)
    feed = xml_feed(document, base_url)
    if feed.warning:
        repaired = repaired_xml(document)
        if repaired != document:
            feed = xml_feed(repaired, base_url)
    if not feed.kind:
        raise ValueError(f"no feed: {feed.warning}")
    return feed


def marked_utf8(body: bytes | str) -> bytes:
    """Text as UTF-8 with a byte order mark, which overrules the encoding that it declares."""
    return body if isinstance(body, bytes) else b"\xef\xbb\xbf" + body.encode("utf-8", "replace")


def gunzipped(body: bytes) -> Iterator[bytes]:
    """The body in pieces, decompressed where it is gzip, member by member; ValueError where it breaks."""
    import zlib
    if not body.startswith(b"\x1f\x8b"):
        yield from (body[at:at + XML_PIECE_BYTES] for at in range(0, len(body), XML_PIECE_BYTES))
        return
    inflater, members = zlib.decompressobj(31), 1
    for at in range(0, len(body), GZIP_PIECE_BYTES):
        piece = body[at:at + GZIP_PIECE_BYTES]
        while piece := piece.lstrip(b"\0") if inflater.eof else piece:      # padding between or after members
            if inflater.eof:
                inflater, members = zlib.decompressobj(31), members + 1
            try:
                yield inflater.decompress(piece, XML_PIECE_BYTES)
            except zlib.error as error:
                raise ValueError(f"broken gzip: byte {at}: {error}") from None
            piece = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if members > MAX_GZIP_MEMBERS:
            raise ValueError(f"gzip of more than {MAX_GZIP_MEMBERS} members: byte {at}")
    if not inflater.eof:
        raise ValueError(f"gzip cut short: byte {len(body)}")


def sitemap_pieces(body: bytes) -> Iterator[bytes]:
    """The sitemap as UTF-8, without what may stand before its first character; ValueError where it passes a bound."""
    from codecs import getincrementaldecoder
    decoder: Any = None
    size = tags = 0
    for piece in gunzipped(body):
        first = decoder is None
        if first:
            decoder = getincrementaldecoder(document_codecs(piece)[0])("replace")
        text = decoder.decode(piece)
        size, tags = size + len(piece), tags + text.count("<")
        if size > MAX_SITEMAP_BYTES or tags > MAX_SITEMAP_TAGS:
            raise ValueError(f"cut after {MAX_SITEMAP_BYTES} bytes, or {MAX_SITEMAP_TAGS} tags")
        yield (text.lstrip("\ufeff \t\r\n\0") if first else text).encode()


def text_entries(pieces: Iterable[bytes], head: dict[str, str], base_url: str) -> Iterator[dict[str, str]]:
    """As `xml_entries`, of a list with one URL a line. The first line that is not empty must be one; others are passed over."""
    torn, number = b"", 0               # the line that the next piece goes on with
    for piece in itertools.chain(pieces, (b"\n",)):
        *lines, torn = re.split(rb"\r\n?|\n", torn[:4 * MAX_FEED_TEXT] + piece)
        for line in lines:
            number += 1
            url = line.decode("utf-8", "replace").strip()
            if ABSOLUTE_HTTP.match(url):
                head["kind"] = "text"
                yield {"link": url, "base": base_url}
            elif url and "kind" not in head:
                raise ValueError(f"found {url[:40]!r}, want XML or a URL: line {number}")
    if "kind" not in head:
        raise ValueError("empty: line 1")


def sitemap_entry(fields: dict[str, str]) -> SitemapEntry:
    url = feed_url(fields["base"], fields.get("link", ""))
    return SitemapEntry(url, one_line(fields.get("lastmod", "")[:MAX_DATE_LENGTH]) or None if url else None)


def parse_sitemap(body: bytes | str, base_url: str = "") -> Sitemap:
    """A sitemap or a sitemap index of sitemaps.org in XML, or a list of URLs in text; gzip or not. Nothing it names is followed.

    One that breaks off, or passes a bound, gives the entries before, and `.warning` says where. ValueError, with the position, where it is
    no sitemap. Linear time, and memory of the entries only.

    >>> parse_sitemap(b"<urlset><url><loc>https://wal.sh/</loc><lastmod>2026-05-23</lastmod></url></urlset>").entries
    [SitemapEntry(url='https://wal.sh/', lastmod='2026-05-23')]
    """
    head: dict[str, str] = {}
    pieces = sitemap_pieces(marked_utf8(body))
    first = next(pieces, b"")
    whole = itertools.chain((first,), pieces)
    found = xml_entries(whole, SITEMAP_ROOTS, head, base_url) if first.startswith(b"<") else text_entries(whole, head, base_url)
    entries, warning = gathered(map(sitemap_entry, found), MAX_SITEMAP_TEXT)
    if "kind" not in head:
        raise ValueError(f"no sitemap: {warning}")
    return Sitemap(head["kind"], entries, warning)


# === 11. ROBOTS2   robots2 v0.2.1 (opt-in) ================================
# Owns the meaning of a robots2.txt text and of the answers to the ask protocol. It narrows what the other gates allow, never more:
# whatever is not understood is kept to be shown, and no permission ever comes of it.

# Each directive's values, strictest first: of several lines the strictest counts; a value that is not listed counts as the first.
ROBOTS2_DIRECTIVES: dict[str, tuple[str, ...]] = {
    "crawl": ("no", "ask", "yes"),              # the gate: may we come at all
    "read": ("no", "ask", "yes"),               # the gate: may we look at what came
    "summarise": ("no", "ask", "yes"),          # from here on the harness's business, answered by robots2_stance
    "quote": ("no", "short-only", "yes"),       # short-only: under 50 words of the source a quote, attribution not counted
    "derivative": ("no", "ask", "yes"),
    "train": ("no", "ask", "yes"),
    "store": ("no", "session-only", "yes"),     # session-only: memory of the running session; no disk, no vectors, no index
    "compete": ("no", "yes"),
    "market": (),                               # free text
    "personalise": ("no", "yes"),
    "monetise": ("no", "ask", "yes"),
    "attribution": ("required", "preferred", "none"),
    "link-back": ("required", "preferred", "none"),
    "rate": (),                                 # requests a minute, or "polite"
    "announce": ("yes", "no"),                  # yes: X-Agent-Identity goes with every request to this host
    "honest": ("yes",),                         # has no other value
}
ROBOTS2_SIGNALS: dict[str, tuple[str, ...]] = {     # what the site says of its own content; shown, decides nothing
    "content-type": ("opinion", "news", "reference", "satire", "commercial", "research", "personal"),
    "editorialised": ("yes", "no", "partial"),
    "ai-assisted": ("yes", "no", "partial"),
    "primary-language": (),                     # an IETF language tag
}
ROBOTS2_SPELLINGS = {
    "summarize": "summarise", "personalize": "personalise", "monetize": "monetise", "editorialized": "editorialised",
    "license": "licence",
}
ROBOTS2_PATH_NAMES = ("user-agent", "allow", "disallow")
ROBOTS2_COMMENT_RE = lazy_re(r"(?:^|\s)#")       # a `#` inside a URL begins no comment
LANGUAGE_TAG_RE = lazy_re(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")
AGENT_CATEGORY_RE = lazy_re(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def robots2_name(text: str) -> str:
    """A directive's name as the text spells it: case and American spelling do not make another directive.

    >>> robots2_name(" Summarize ")
    'summarise'
    """
    name = text.strip().lower()
    return ROBOTS2_SPELLINGS.get(name, name)


def robots2_reading(directive: str, value: str) -> tuple[str | None, bool]:
    """What a directive's value is read as (None: as nothing said), and whether it is one of the text's own values.

    >>> robots2_reading("quote", "Short-Only"), robots2_reading("train", "maybe"), robots2_reading("rate", "fast")
    (('short-only', True), ('no', False), (None, False))
    """
    if directive == "market":
        return value or None, bool(value)
    value = value.lower()
    if directive == "rate":
        if re.fullmatch(r"[+-]?[0-9]+", value):     # cut at nine digits: int() of a long number is slow, or an error
            return ("0" if value[0] == "-" else value.lstrip("+0")[:9] or "0"), True
        return ("polite", True) if value == "polite" else (None, False)     # a pace, not a permission: nothing to withhold
    values = ROBOTS2_DIRECTIVES[directive]
    return (value, True) if value in values else (values[0], False)


def robots2_stricter(directive: str, one: str, other: str) -> str:
    """The stricter of two readings of one directive; of two markets the first."""
    if directive == "rate":
        return min(one, other, key=lambda rate: float("inf") if rate == "polite" else int(rate))
    return min(one, other, key=ROBOTS2_DIRECTIVES[directive].index) if directive != "market" else one


def robots2_block_agents(header: str) -> list[str]:
    """The lower-case names that an `[agent: …]` line addresses; none where it is no such line.

    >>> robots2_block_agents("[Agent: AI-Researcher]"), robots2_block_agents("[agent: Walsh-Research/1.2 (ai-researcher)]")
    (['ai-researcher'], ['walsh-research', 'ai-researcher'])
    """
    words = [word.partition("/")[0] for word in re.split(r"[\s\[():,|]+", header.partition("]")[0].lower()) if word]
    return words[1:] if words[:1] == ["agent"] else []


class Robots2(NamedTuple):
    """A robots2.txt as it concerns one agent category (`policy`), or several merged along a chain."""

    category: str
    meta: dict[str, str]                # the `# meta: name: value` lines at the top
    policy: dict[str, str]              # what holds for us: the global directives, overridden by our block's
    global_policy: dict[str, str]
    signals: dict[str, str]
    report_to: list[str]
    chain: str | None                # the URL of the next file, as written
    unknown: list[Robots2Line]
    paths: tuple[RobotsTxt, ...]        # every one of them may deny

    @classmethod
    def parse(cls, body: bytes | str, category: str = ROBOTS2_CATEGORY) -> Robots2:
        """Read a robots2.txt; at most 500 KiB of it, in linear time. Never raises.

        A block is ours where it names our category or our product token. It ends at the next block or at a `User-agent` line.
        Path rules inside our block bind us besides those of the selected group. Lines under a header that is no
        `[agent: …]` bind everyone: in doubt they narrow.
        """
        data = body.encode("utf-8", "replace") if isinstance(body, str) else bytes(body)
        cut = len(data) > MAX_ROBOTS_BYTES
        lines = data[:MAX_ROBOTS_BYTES].removeprefix(b"\xef\xbb\xbf").splitlines()
        if cut:         # a line cut in two may restrict more than was meant, never allow more
            lines[-1] = b"" if lines[-1].lstrip().lower().startswith(b"allow") else re.sub(rb"(?:%[0-9A-Fa-f]?|\$)\Z", b"", lines[-1])
        last = max((number for number, raw in enumerate(lines, 1) if raw.strip()), default=0)
        everyone: dict[str, str] = {}
        ours: dict[str, str] = {}
        others: dict[str, str] = {}     # somebody else's block: read like ours, then dropped
        path_lines = [b""] * len(lines)         # what the robots.txt reader is shown, at the line numbers of this file
        our_path_lines = [b""] * len(lines)
        meta: dict[str, str] = {}
        signals: dict[str, str] = {}
        report_to: dict[str, None] = {}         # a set that keeps its order
        unknown: list[Robots2Line] = []
        chain, section, at_top = None, everyone, True

        for number, raw in enumerate(lines, 1):
            line = raw.decode("utf-8", "replace").strip()
            if line.startswith("#"):
                kind, _, rest = line[1:].partition(":")
                if at_top and robots2_name(kind) == "meta":
                    key, _, value = rest.partition(":")
                    meta.setdefault(robots2_name(key), value.strip())
                continue
            if not line:
                continue
            at_top = False
            line = ROBOTS2_COMMENT_RE.split(line, maxsplit=1)[0].rstrip()
            left, _, value = line.partition(":")
            name, value, known = robots2_name(left), value.strip(), True
            if line.startswith("["):
                agents = robots2_block_agents(line)
                known = bool(agents) and line.endswith("]")
                section = everyone if not agents or "*" in agents else others
                if section is others and not {category.lower(), UA_TOKEN.lower()}.isdisjoint(agents):
                    section = ours
                    our_path_lines[number - 1] = b"User-agent: *"
            elif name in ROBOTS2_DIRECTIVES:
                reading, known = robots2_reading(name, value)
                if reading is not None:
                    section[name] = robots2_stricter(name, section.get(name, reading), reading)
            elif name in ROBOTS2_SIGNALS:
                tag = name == "primary-language"
                known = bool(LANGUAGE_TAG_RE.fullmatch(value)) if tag else value.lower() in ROBOTS2_SIGNALS[name]
                if known:
                    signals.setdefault(name, value if tag else value.lower())
            elif name == "report-to":
                report_to[value] = None
            elif name == "chain":
                known = number == last and not cut and bool(re.fullmatch(r"(?i)https?://[^\s/]\S*", value))
                chain = value if known else chain
            else:       # a path rule, or for the robots.txt reader to recognise as a misspelt one
                if name.startswith("user"):
                    section = everyone
                if section is not others:
                    (path_lines if section is everyone else our_path_lines)[number - 1] = raw
                known = name in ROBOTS2_PATH_NAMES
            if not known and len(unknown) < ROBOTS2_MAX_UNKNOWN:
                unknown.append(Robots2Line(number, name, value))

        paths = tuple(RobotsTxt.parse(b"\n".join(shown)) for shown in (path_lines, our_path_lines))
        return cls(category, meta, {**everyone, **ours}, everyone, signals, list(report_to), chain, unknown, paths)

    @property
    def chain_id(self) -> str | None:
        return self.meta.get("chain-id") or None

    @property
    def rate_interval(self) -> float | None:
        """Seconds between requests that `rate` asks for; None where it asks for none, and for a rate of 0, which the gate denies."""
        rate = self.policy.get("rate", "polite")
        return None if rate in ("polite", "0") else 60 / int(rate)

    def path_rule(self, target: str) -> Rule | None:
        """The path rule that decides `target`, an absolute URL or `path[?query]`: the first that denies, else the first that allows."""
        rules = [rule for rule in (paths.match(target) for paths in self.paths) if rule]
        return next((rule for rule in rules if not rule.allow), rules[0] if rules else None)

    def path_denied(self, target: str) -> bool:
        rule = self.path_rule(target)
        return rule is not None and not rule.allow

    def to_dict(self) -> dict[str, Any]:
        shown = {name: as_json(getattr(self, name)) for name in self._fields if name != "paths"}
        return {**shown, "rate_interval": self.rate_interval}


def robots2_merge(first: Robots2, following: Robots2) -> Robots2:
    """`first` with what the file that it chains to adds. The text leaves the join open; ours:

    The nearer file is the site's own word: each directive and signal that it states holds, the chained file fills its silence.
    Path rules are fences, and fences add up: what either file denies is denied. `chain` is the chained file's, the way on.
    """
    return first._replace(
        policy={**following.policy, **first.policy},
        global_policy={**following.global_policy, **first.global_policy},
        signals={**following.signals, **first.signals},
        report_to=list(dict.fromkeys(first.report_to + following.report_to)),
        chain=following.chain,
        unknown=(first.unknown + following.unknown)[:ROBOTS2_MAX_UNKNOWN],
        paths=first.paths + following.paths,
    )


def robots2_chain(files: Sequence[tuple[str, Robots2]]) -> tuple[Robots2, str | None]:
    """The files read so far, the site's own first, each with its URL: merged, and the URL to read next or None.

    At most three chained files; the first file that repeats an earlier one, by URL or by `chain-id`, ends the chain and adds nothing.
    """
    merged = files[0][1]
    urls, chain_ids = {files[0][0]}, {merged.chain_id}
    for url, file in files[1:ROBOTS2_MAX_CHAIN + 1]:
        if url in urls or file.chain_id is not None and file.chain_id in chain_ids:
            return merged, None
        merged = robots2_merge(merged, file)
        urls.add(url)
        chain_ids.add(file.chain_id)
    return merged, merged.chain if merged.chain not in urls and len(files) <= ROBOTS2_MAX_CHAIN else None


def robots2_stance(policy: dict[str, str], directive: str) -> str:
    """What a policy says of a use, in the text's words ("yes", "no", "ask", "short-only", "required" …), or "unstated".

    ValueError for a directive that the text does not have: a misspelt question must not look like silence.
    >>> robots2_stance({"quote": "short-only"}, "quote"), robots2_stance({}, "train")
    ('short-only', 'unstated')
    """
    name = robots2_name(directive)
    if name not in ROBOTS2_DIRECTIVES:
        raise ValueError(f"directive is {directive!r}, want one of {', '.join(ROBOTS2_DIRECTIVES)}")
    return policy.get(name, "unstated")


def robots2_gate(robots2: Robots2, target: str) -> Robots2Ruling:
    """Path rules, then `crawl`, `read` and `rate`. "ask" stands until every directive in `.ask` is permitted (`ask_permits`)."""
    rule = robots2.path_rule(target)
    if rule is not None and not rule.allow:
        return Robots2Ruling("denied", f"robots2.txt line {rule.line}: Disallow: {rule.value}", rule=rule)
    stances = {name: robots2_stance(robots2.policy, name) for name in ("crawl", "read")}
    for name, stance in stances.items():
        if stance == "no":
            return Robots2Ruling("denied", f"robots2.txt says {name}: no")
    if robots2.policy.get("rate") == "0":
        return Robots2Ruling("denied", "robots2.txt says rate: 0")
    ask = tuple(name for name, stance in stances.items() if stance == "ask")
    return Robots2Ruling("ask", "robots2.txt wants to be asked: " + ", ".join(ask), ask) if ask else Robots2Ruling("allowed")


def robots2_identity(category: str = ROBOTS2_CATEGORY) -> str:
    """The value of X-Agent-Identity. ValueError where the category could not stand in a header.

    >>> robots2_identity()
    'Walsh-Research/1.2 (ai-researcher)'
    """
    if not AGENT_CATEGORY_RE.fullmatch(category):
        raise ValueError(f"agent category is {category!r}, want letters, digits and hyphens")
    return f"{ROBOTS2_AGENT} ({category})"


ROBOTS2_IDENTITY = f"{ROBOTS2_AGENT} ({ROBOTS2_CATEGORY})"


def robots2_ask_url(wire_url: str, directive: str) -> str:
    """Where a site is asked for a directive: HEAD this URL, with X-Agent-Identity. ValueError without scheme and host.

    >>> robots2_ask_url("https://example.org:8443/blog/a?b", "summarize")
    'https://example.org:8443/.well-known/robots2-ask?directive=summarise&agent=Walsh-Research/1.2'
    """
    from urllib.parse import quote  # slow to import, and most runs ask nobody

    origin = re.match(r"(?i)https?://[^/?#]+", wire_url)
    if origin is None:
        raise ValueError(f"URL is {wire_url!r}, want http(s)://host")
    return f"{origin[0]}{ROBOTS2_ASK_PATH}?directive={quote(robots2_name(directive), safe='')}&agent={ROBOTS2_AGENT}"


def parse_ask_answer(status: int, headers: Iterable[tuple[str, str]]) -> AskAnswer:
    """What an answer to the ask protocol grants. Only a 200 with one understood decision permits anything; 429 is "later"."""
    if status == 429:
        return AskAnswer("later", reason="HTTP 429, ask again later")
    if status != 200:
        return AskAnswer("deny", reason=f"HTTP {status}, want 200", cacheable=status == 404)
    pairs = [(name.lower(), value.strip(" \t")) for name, value in headers]
    decisions = sorted({word.strip(" \t").lower() for name, value in pairs if name == "x-robots2-decision" for word in value.split(",")})
    if len(decisions) != 1 or decisions[0] not in ("allow", "allow-once", "deny"):
        return AskAnswer("deny", reason=f"X-Robots2-Decision is {', '.join(decisions)[:80]!r}, want allow, allow-once or deny")
    # Proxies join equal headers by ", ", which no well-formed scope contains. An empty scope stays: it must not turn site-wide.
    scopes = tuple(scope for name, value in pairs if name == "x-robots2-scope" for scope in re.split(r",[ \t]+", value))
    return AskAnswer(decisions[0], scopes, f"X-Robots2-Decision: {decisions[0]}", cacheable=decisions[0] != "allow-once")


# What servers read in more than one way: a broken or doubled escape, an escaped slash, backslash or control, raw unsafe octets.
SCOPE_DOUBT_RE = lazy_re(r"(?i)%(?![0-9a-f]{2})|%(?:[01][0-9a-f]|25|2f|5c|7f)|[^!-~]|[\\?#]")


def scope_form(path: str) -> str | None:
    """A path or a scope in one spelling, or None where servers may differ in what it means."""
    if not path.startswith("/") or SCOPE_DOUBT_RE.search(path):
        return None
    form = robots_octets(path)
    return None if "/.;" in form or "/..;" in form else form      # some servers drop `;…` before they resolve dots


def scope_covers(scopes: Sequence[str], path: str) -> bool:
    """Whether `path` (`path[?query]`) lies within one of the scopes of an answer; without scopes the whole site does.

    A last `*` covers everything below, an inner `*` exactly one segment. A scope that ends otherwise covers that one path,
    and not with a query; a `*` beside other characters is a plain one. Malformed scopes cover nothing; dot segments of the path
    are resolved, so that a scope with any matches none; in doubt no.
    >>> scope_covers(["/blog/*", "/u/*/public"], "/blog/2026/a?b"), scope_covers(["/blog/*"], "/blog/../docs/")
    (True, False)
    """
    if not scopes:
        return True
    bare, mark, query = path.partition("#")[0].partition("?")
    form = scope_form(bare)
    if form is None:
        return False
    segments = robots_resolve_dots(form)[1:].split("/")
    segments[-1] += mark + query
    return any(scope_matches(scope, segments) for scope in scopes)


def scope_matches(scope: str, segments: Sequence[str]) -> bool:
    form = scope_form(scope)
    if form is None:
        return False
    pattern = form[1:].split("/")
    if pattern[-1] == "*" and len(segments) >= len(pattern):
        del pattern[-1]
        segments = segments[:len(pattern)]
    return len(pattern) == len(segments) and all(
        piece == segment or piece == "*" and segment != "" for piece, segment in zip(pattern, segments))


def ask_permits(answer: AskAnswer | None, path: str) -> bool:
    """Whether an answer permits its directive on `path`; no answer on file is no."""
    return answer is not None and answer.decision in ("allow", "allow-once") and scope_covers(answer.scopes, path)


# === 12. EXCHANGE   R1 R6 R7 R9 R13   spec 8, 10.4, 22.1 =================
# Owns what goes out and what comes back: the only spelling of a request, and the results that a caller sees.

class Kind(NamedTuple):
    """How requests of one kind behave; everything not said here is the same for all."""

    accept: str
    max_redirects: int
    transport_retries: int      # after an exchange that got no HTTP answer


KINDS = {
    "target": Kind("text/markdown, application/atom+xml;q=0.9, application/rss+xml;q=0.9, application/feed+json;q=0.9, "
                   "text/html;q=0.8, */*;q=0.5", MAX_REDIRECTS, DEFAULT_MAX_RETRIES),       # R9: markdown first
    "robots": Kind("text/plain, */*;q=0.5", MAX_ROBOTS_REDIRECTS, 1),
    "robots2": Kind("text/plain, */*;q=0.5", MAX_ROBOTS_REDIRECTS, 1),
    "blocklist": Kind("application/json", MAX_ROBOTS_REDIRECTS, 1),
    "schema": Kind("application/schema+json, application/json;q=0.9", MAX_ROBOTS_REDIRECTS, 1),
    "ask": Kind("*/*", 0, 1),
    "fixture": Kind("text/markdown, text/html;q=0.8, */*;q=0.5", MAX_REDIRECTS, 1),
}
MAX_BYTES_OF = {"robots": MAX_ROBOTS_BYTES + 1, "robots2": MAX_ROBOTS_BYTES + 1, "blocklist": MAX_BLOCKLIST_BYTES,
                "schema": MAX_SCHEMA_BYTES, "ask": 1}


UNSAFE_IN_PARAMETER = r"[^A-Za-z0-9._~-]"
UNSAFE_IN_SPEC_PARAMETER = r"[^A-Za-z0-9._~/-]"     # R13's example escapes the slash of `impl` and leaves that of `spec`


def tag_url(url: str, impl: str, sha: str, spec: str = SPEC_VERSION) -> str:
    """The URL with R13's parameters after its own; query and fragment are kept, an empty `sha` is left out.

    >>> tag_url("https://wal.sh/robots.txt", "walsh/research", "afd2c01")
    'https://wal.sh/robots.txt?impl=walsh%2Fresearch&sha=afd2c01&spec=walsh-research-compliance/v1.3'
    """
    before, hash_mark, fragment = url.partition("#")
    address, _, query = before.partition("?")
    parameters = [query] if query else []
    parameters.append("impl=" + re.sub(UNSAFE_IN_PARAMETER, percent_encode, impl))
    if sha:
        parameters.append("sha=" + re.sub(UNSAFE_IN_PARAMETER, percent_encode, sha))
    parameters.append("spec=" + re.sub(UNSAFE_IN_SPEC_PARAMETER, percent_encode, spec))
    return f"{address}?{'&'.join(parameters)}{hash_mark}{fragment}"


def request_headers(kind: str, validators: Validators, announce: str = "") -> dict[str, str]:
    """Every header of an outgoing request but Host and Connection, which belong to the socket. User-Agent last: nothing overrides it (R1)."""
    headers = {"Accept": KINDS[kind].accept, "Accept-Encoding": "gzip, deflate"}
    headers.update(conditional_headers(validators))
    if announce:
        headers["X-Agent-Identity"] = announce
    headers["User-Agent"] = USER_AGENT
    return headers


def wants_body(status: int, headers: Sequence[tuple[str, str]]) -> bool:
    """R6: of what came back, only a success of a readable type is read."""
    return 200 <= status < 300 and not is_unread_type(content_type_of(headers)[0])


def wants_any_success(status: int, headers: Sequence[tuple[str, str]]) -> bool:
    """For policy documents and sitemaps, which servers send under any type."""
    return 200 <= status < 300


Octets = bytes                  # Result.bytes is a count
NOTHING: list[Any] = []         # the defaults of tuples that a caller makes by hand
NO_FIELDS: dict[str, Any] = {}


def as_response(given: Any) -> Response:
    """What a transport handed over, whatever its class. AttributeError, TypeError, ValueError: it is no answer."""
    body = given.body if isinstance(given.body, bytes) else bytes(memoryview(given.body))
    headers = [(name.lower(), value.strip()) for name, value in given.headers]
    return Response(operator.index(given.status), headers, body, bool(given.truncated))


class Decision(NamedTuple):
    """What the gates say of a URL; true where they allow it.

    `retry_at` (Unix seconds) stands where the answer is "not yet"; without it a refusal is final.
    """

    allowed: bool
    url: str
    gate: str | None = None                     # "R3", "R2", "robots2", "address"; "R4", "R5" where it is only too early
    reason: str = ""
    verdict: Verdict | None = None
    rule: Rule | None = None
    crawl_delay: float | None = None
    waited: float = 0.0                         # seconds
    retry_at: float | None = None
    group: str | None = None                    # the selected User-agent value
    robots_source: str = ""                     # where robots.txt came from, and how old it is
    blocked_by: BlockedDomain | None = None
    content_signals: dict[str, str] = NO_FIELDS

    @property
    def recommendation(self) -> str | None:
        """What the policy model advises: its word for the verdict, and "not_recommended" where another gate refused."""
        if not self.allowed and self.retry_at is None and self.gate in ("R3", "address", "robots2"):
            return "not_recommended"
        return self.verdict.recommendation if self.verdict else None

    def __bool__(self) -> bool:
        return self.allowed

    def to_dict(self) -> dict[str, Any]:
        return {**with_iso_times(self), "recommendation": self.recommendation}



class Result(NamedTuple):
    """What became of one target. `outcome`: "fetched", "unchanged", "denied", "deferred", "skipped" or "failed".

    `status` is the HTTP status or None; `gate`, `reason`, `verdict`, `rule` and `robots_source` say who decided, and by which line of what;
    `bytes` and `sha256` are of the decoded body; `links` is [Link(title, url)] of Markdown and feeds, never of a page; `metadata` a dict;
    `waited`, `elapsed` and `crawl_delay` are seconds, `at` and `retry_at` Unix seconds; `body` (bytes) and `.text` are in memory only (R6).
    """

    outcome: str
    url: str                                    # as asked
    final_url: str = ""
    status: int | None = None
    gate: str | None = None
    reason: str = ""
    verdict: Verdict | None = None
    rule: Rule | None = None
    group: str | None = None
    content_type: str = ""
    bytes: int = 0                              # of the decoded body
    sha256: str = ""
    etag: str = ""
    last_modified: str = ""
    title: str = ""
    links: list[Link] = NOTHING
    metadata: dict[str, Any] = NO_FIELDS
    robots_directives: list[str] = NOTHING           # meta robots and X-Robots-Tag that bind us
    content_signals: dict[str, str] = NO_FIELDS
    redirects: list[str] = NOTHING
    attempts: int = 0                           # requests sent for this target
    waited: float = 0.0                         # seconds, for whatever reason
    elapsed: float = 0.0                        # seconds
    at: float = 0.0                             # Unix seconds
    retry_at: float | None = None
    warnings: list[str] = NOTHING
    robots_source: str = ""
    crawl_delay: float | None = None
    body: Octets = b""                          # in memory only

    @property
    def ok(self) -> bool:
        return self.outcome in ("fetched", "unchanged")

    @property
    def recommendation(self) -> str | None:
        if self.outcome == "denied" and self.gate != "R2":
            return "not_recommended"
        return self.verdict.recommendation if self.verdict else None

    @property
    def text(self) -> str:
        """The body as text: charset from the header, a BOM, the page's own word, then UTF-8 with replacement."""
        return decode_body(self.body, self.content_type)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; times in ISO 8601; without the body (R6)."""
        fields = with_iso_times(self)
        del fields["body"]
        return {**fields, "ok": self.ok, "recommendation": self.recommendation}


class Source(NamedTuple):
    """One way in which a site offers structured content.  R9"""

    kind: str                   # "feed", "markdown", "llms.txt" or "sitemap"
    url: str
    items: list[Any] = NOTHING       # FeedItem, Link, LlmsLink or SitemapEntry; empty where the source is only listed
    title: str = ""
    warning: str = ""


def with_iso_times(value: Any) -> dict[str, Any]:
    """as_json, with the Unix seconds of `at` and `retry_at` as ISO 8601 UTC."""
    fields: dict[str, Any] = as_json(value)
    for name in ("at", "retry_at"):
        if fields.get(name) is not None:
            fields[name] = iso_utc(fields[name])
    return fields


def spell_seconds(seconds: float) -> str:
    """A span as people say it.

    >>> spell_seconds(2.345), spell_seconds(90), spell_seconds(7200), spell_seconds(200000)
    ('2.3 s', '90 s', '2 h', '2.3 d')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(max(0.0, seconds), 1):g} s"


def spell_rule(rule: Rule) -> str:
    return f"robots.txt line {rule.line}: {'Allow' if rule.allow else 'Disallow'}: {printable(rule.value, 120)}"


def spell_robots_source(state: RobotsState, now: float) -> str:
    """Where robots.txt came from, and how old it is."""
    if state.unreachable_since:
        held = f"a copy held since {iso_utc(state.fetched_at)}" if state.robots else "none held"
        return f"{held}; unreachable since {iso_utc(state.unreachable_since)}"
    age = now - state.checked_at
    found = f"robots.txt ({state.status})" if state.status else "robots.txt"
    return f"{found} fetched now" if age < 1.0 else f"{found} from the cache, {spell_seconds(age)} old"


def robots_decision(url: str, target: str, state: RobotsState, now: float, unreachable: str) -> Decision:
    """R2: what is held of a site's robots.txt says this of a target (path and query). spec 9.1.1, 9.1.4"""
    source = spell_robots_source(state, now)
    if robots_undefined_for_good(state, now):
        return Decision(True, url, verdict=Verdict.ALLOWED_IMPLICIT, robots_source=source,
                        reason="robots.txt out of reach for 30 days: the host counts as without rules (RFC 9309 2.3.1.4)")
    if state.robots is None and state.unreachable_since:
        if unreachable == "defer":
            return Decision(False, url, "R2", f"{state.trouble}; deferred (RFC 9309 2.3.1.4)", Verdict.UNKNOWN_UNREACHABLE,
                            retry_at=max(state.retry_at, now), robots_source=source)
        return Decision(True, url, verdict=Verdict.UNKNOWN_UNREACHABLE, reason=f"{state.trouble}; allowed (spec 9.1.1)", robots_source=source)
    if state.robots is None:
        return Decision(True, url, verdict=Verdict.ALLOWED_IMPLICIT, reason=f"robots.txt answered {state.status}: no rules", robots_source=source)
    robots = state.robots
    verdict, rule = robots.ruling(target)
    allowed = verdict is not Verdict.DISALLOWED_EXPLICIT
    if rule is not None:
        reason = spell_rule(rule)
    elif robots.group is None:
        reason = "robots.txt has no group for us"
    else:
        reason = f"no rule of the group {printable(robots.group, 60)} matches"
    return Decision(allowed, url, None if allowed else "R2", reason, verdict, rule, robots.crawl_delay, group=robots.group,
                    robots_source=source, content_signals=robots.content_signals)


def wants_structured(status: int, headers: Sequence[tuple[str, str]]) -> bool:
    """For `discover`: what R6 reads, and gzip as sitemaps come in it."""
    return wants_body(status, headers) or 200 <= status < 300 and content_type_of(headers)[0] in SITEMAP_ARCHIVE_TYPES


SITEMAP_ARCHIVE_TYPES = ("application/gzip", "application/x-gzip", "application/octet-stream", "binary/octet-stream")


class Reading(NamedTuple):
    """What a body says, as metadata."""

    title: str = ""
    links: list[Link] = NOTHING
    metadata: dict[str, Any] = NO_FIELDS
    page: PageMetadata | None = None
    warnings: list[str] = NOTHING


EMPTY_READING = Reading()


def read_metadata(body: bytes, kind: str, content_type: str, base_url: str) -> Reading:
    """R6, R9: the metadata of a body by what the server says it is (`kind`, of `media_kind`): markdown, a feed, or the head of a page."""
    if not body:
        return EMPTY_READING
    if kind == "markdown":
        head = body[:MAX_READ_BYTES]
        text = decode_body(head, content_type)
        warnings = [f"links are read from the first {MAX_READ_BYTES} bytes"] if len(body) > len(head) else []
        return Reading(parse_llms_txt(text).title, markdown_links(text), warnings=warnings)
    if kind in ("feed", "xml", "json"):
        try:
            feed = parse_feed(body, content_type, base_url)
        except ValueError as error:
            return Reading(warnings=[f"not a feed: {error}"] if kind == "feed" else [])
        links = [Link(item.title, item.url) for item in feed.items if item.url]
        return Reading(feed.title, links, {"feed": feed.kind, "site": feed.url, "items": len(feed.items)},
                       warnings=[feed.warning] if feed.warning else [])
    if kind == "html":
        page = page_metadata(decode_body(body[:MAX_HEAD_CHARS], content_type), base_url)
        metadata = {name: value for name, value in page.to_dict().items() if value and name not in ("title", "robots")}
        return Reading(page.title, [], metadata, page)
    return EMPTY_READING


def no_document(visit_trouble: str, answer: Response | TransportError | Decision) -> str:
    """Why a policy document did not come, in one line."""
    if isinstance(answer, TransportError):
        return visit_trouble or answer.reason
    if isinstance(answer, Decision):
        return answer.reason
    return visit_trouble or f"answered {answer.status}"


def parse_tag(text: str) -> tuple[str, str]:
    """R13: ("ORG/REPO", "SHA" or "") of "ORG/REPO[@SHA]". ValueError: it is none."""
    match = re.fullmatch(r"([A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})(?:@([A-Za-z0-9._-]{1,64}))?", text)
    if match is None:
        raise ValueError(f"tag is {printable(text, 80)!r}, want ORG/REPO or ORG/REPO@SHA")
    return match[1], match[2] or ""


def is_kin(host: str, wire: str) -> bool:
    """Whether a canonical document may have moved there: by https to the same host, its parent or a subdomain."""
    other = split_url(wire).host
    return wire.startswith("https://") and (other == host or other.endswith("." + host) or host.endswith("." + other) and "." in other)


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, want one of {', '.join(choices)}")


def site_of(wire: str) -> str:
    """scheme://host[:port]"""
    return robots_url(wire)[:-len("/robots.txt")]


def host_of(url: str) -> str:
    try:
        return host_key(url)
    except ValueError:
        return ""




@lru_cache(maxsize=4096)
def site_refusal(site: str) -> str:
    """host_refusal of a site (scheme, host and port): what can be said without a resolver."""
    return host_refusal(split_url(site).host)


# ==========================================================================
# THE WATERLINE: pure above, effects below.
# ==========================================================================

# === 13. SHELF   R11   spec 11.2 =========================================
# Owns what outlives a process: pickle entries in one private folder, and the locks between processes.
# Whatever the disk does or holds, the outcome is a miss or an unwritten entry and one line of warning, never an error.

OPEN_PRIVATELY = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
# An entry; with ".tmp" a file that lives while its lock is held: what an entry is written to, or a lock itself.
SHELF_FILE = lazy_re(r"([a-z]+)-[0-9a-f]{32}\.pickle(\.(?:[0-9a-f-]+\.)?tmp)?\Z")

PICKLE_STOP, PICKLE_FRAME = 0x2E, 0x95
# All that protocol 4 says for None, bool, int, float, str, bytes, list and dict: opcode -> bytes with its argument.
# No tuple: as a dict key its hash recurses in C (a crash at depth 10^5) and doubles with each shared level (a hang).
# No PUT: nine bytes of it take all memory (gh-115952).
PICKLE_FIXED = {
    **dict.fromkeys(b"N\x88\x89", 1),           # NONE NEWTRUE NEWFALSE
    **dict.fromkeys(b"(]ae}su\x94", 1),         # MARK EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS MEMOIZE
    0x80: 2, 0x4B: 2, 0x4D: 3, 0x4A: 5, 0x47: 9,    # PROTO BININT1 BININT2 BININT BINFLOAT
    0x68: 2, 0x6A: 5,                           # BINGET LONG_BINGET
}
# opcode -> width of the little-endian count of the bytes that follow
PICKLE_COUNTED = {
    0x8C: 1, 0x58: 4, 0x8D: 8,                  # SHORT_BINUNICODE BINUNICODE BINUNICODE8
    0x43: 1, 0x42: 4, 0x8E: 8,                  # SHORT_BINBYTES BINBYTES BINBYTES8
    0x8A: 1, PICKLE_FRAME: 8,                   # LONG1
}


def sha256_hex(data: bytes) -> str:
    import hashlib  # loads OpenSSL: --version need not pay for it

    return hashlib.sha256(data).hexdigest()


CACHE_ROOTS = {
    "win32": [("LOCALAPPDATA", "\\")], "darwin": [("HOME", "/Library/Caches/")], "": [("XDG_CACHE_HOME", "/"), ("HOME", "/.cache/")]}


def default_cache_dir(environ: Mapping[str, str], platform: str) -> str | None:
    """The cache folder by $WALSH_RESEARCH_CACHE or the custom of `platform` (a `sys.platform`); None where the environment names no place.

    >>> default_cache_dir({"HOME": "/home/ada", "XDG_CACHE_HOME": "not/absolute"}, "linux")
    '/home/ada/.cache/walsh-research'
    """
    if chosen := environ.get("WALSH_RESEARCH_CACHE"):
        return chosen
    for variable, below in CACHE_ROOTS.get(platform, CACHE_ROOTS[""]):
        root = environ.get(variable, "")
        if root.startswith("/") or root and platform == "win32":        # the XDG specification: a relative path is to be ignored
            return f"{root.rstrip('/')}{below}walsh-research"
    return None


def pickle_refusal(blob: bytes) -> str:
    """Why `blob` must not be unpickled, in a few words; empty where its opcodes build plain data no larger than itself.

    >>> pickle_refusal(b"\\x80\\x04cos\\nsystem\\n.")
    'opcode 0x63 is not plain data'
    """
    if blob[:2] != b"\x80\x04":
        return "is no pickle of protocol 4"
    at, end = 0, len(blob)
    for _ in range(MAX_PICKLE_OPCODES):
        if at >= end:
            return "is torn"
        code = blob[at]
        if code == PICKLE_STOP:
            return "" if at + 1 == end else f"has {end - at - 1} bytes after its end"
        at += PICKLE_FIXED.get(code, 1)
        if code in PICKLE_COUNTED:
            count = int.from_bytes(blob[at:at + PICKLE_COUNTED[code]], "little")
            at += PICKLE_COUNTED[code]
            if count > end - at:
                return "is torn"
            at += 0 if code == PICKLE_FRAME else count      # what a frame holds is opcodes again
        elif code not in PICKLE_FIXED:
            return f"opcode 0x{code:02x} is not plain data"
    return f"has more than {MAX_PICKLE_OPCODES} opcodes"


@cache
def plain_unpickler() -> Callable[[bytes], Any]:
    """A `loads` that refuses every global: the second wall behind `pickle_refusal`."""
    import pickle  # costs a millisecond that a run without a cache need not pay

    class PlainUnpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError("globals are refused")

    return lambda blob: PlainUnpickler(io.BytesIO(blob)).load()


def shelf_entry(kind: str, key: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"format": SHELF_FORMAT, "kind": kind, "key": key, "data": data}


def disk_trouble(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def ownership_doubt(status: os.stat_result) -> str:
    """Why a file or folder must not be believed, or nothing; Windows keeps owners and modes elsewhere."""
    if sys.platform == "win32":
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be written by others" if status.st_mode & 0o022 else ""


def read_private_file(path: str) -> bytes:
    """The bytes of a file of our own; `OSError` where it cannot be read, `ValueError` where it must not be."""
    fd = os.open(path, os.O_RDONLY | OPEN_PRIVATELY)        # non-blocking: a FIFO must not hang us
    try:
        status = os.fstat(fd)
        doubt = ownership_doubt(status) if stat.S_ISREG(status.st_mode) else "is no regular file"
        if not doubt and status.st_size > MAX_ENTRY_BYTES:
            doubt = f"has {status.st_size} bytes, at most {MAX_ENTRY_BYTES} are read"
        if doubt:
            raise ValueError(doubt)
        return b"".join(iter(lambda: os.read(fd, status.st_size + 1), b""))     # one piece as a rule, which is not copied
    finally:
        os.close(fd)


def write_private_file(path: str, blob: bytes, modified_at: float, durable: bool) -> None:
    """`blob` becomes the whole file at `path` or, with an `OSError`, nothing changes there and no scratch file stays."""
    scratch = f"{path}.{os.urandom(8).hex()}.tmp"
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_PRIVATELY, 0o600)
    try:
        try:
            with suppress(OSError):
                lock_file(fd)       # else a sweep takes it for a dead writer's
            rest = memoryview(blob)
            while rest:
                rest = rest[os.write(fd, rest):]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)            # NFS and quotas speak up only here
        os.utime(scratch, (modified_at, modified_at))       # the bot's clock, which `sweep` is asked by
        os.replace(scratch, path)
        if durable and os.name != "nt":     # Windows syncs no folder
            folder = os.open(os.path.dirname(path), os.O_RDONLY)        # the operator may have named a symbolic link
            with suppress(OSError):         # nor do some network file systems
                os.fsync(folder)
            os.close(folder)
    finally:            # Ctrl-C, too, leaves nothing half-written
        with suppress(OSError):
            os.unlink(scratch)


def make_private_folders(folder: str) -> None:
    """`folder` and its missing parents, each 0700 (`os.makedirs` gives the parents the umask's mode)."""
    parent = os.path.dirname(folder.rstrip("/" + os.sep))
    if parent not in ("", folder) and not os.path.isdir(parent):     # a missing drive is its own parent
        make_private_folders(parent)
    with suppress(FileExistsError):         # another process was faster
        os.mkdir(folder, 0o700)


# What is locked is a file that exists only meanwhile, and the kernel lets go of it when its holder dies.

LOCK_IS_TAKEN = PermissionError if os.name == "nt" else BlockingIOError
HELD_NAMES: dict[str, ShelfLock] = {}         # what this process holds; bots without a cache exclude each other here alone


def lock_file(fd: int) -> bool:
    """Until it is closed. Never blocks; False where another has it."""
    try:
        if sys.platform == "win32":
            import msvcrt
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # POSIX only
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except LOCK_IS_TAKEN:
        return False
    return True


def open_locked(path: str) -> int | None:
    """A descriptor that holds the lock of the file at `path`; None where another has it, `OSError` where there are no locks."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_PRIVATELY, 0o600)
    is_locked = False
    try:
        is_locked = lock_file(fd) and os.path.samestat(os.fstat(fd), os.stat(path))     # not one that is gone since it was opened
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            with suppress(OSError):
                os.unlink(path)
            raise
    finally:
        if not is_locked:
            with suppress(OSError):
                os.close(fd)
    return fd if is_locked else None


def remove_locked(path: str, fd: int) -> None:
    """Ends a lock: its file goes first, so that a copy of the descriptor in some child holds nothing. Windows removes no open file."""
    steps: list[Callable[[], None]] = [lambda: os.unlink(path), lambda: os.close(fd)]
    for step in steps[::-1] if os.name == "nt" else steps:
        with suppress(OSError):
            step()


class ShelfLock(NamedTuple):
    """A name that this process holds until `release`, its end, or the end of a `with`. A forked child does not hold it."""

    name: str
    path: str = ""
    fd: int = -1        # where this process is all that is excluded

    def release(self, *_: object) -> None:
        if HELD_NAMES.get(self.name) is self:       # neither released before, nor a forked child's copy
            del HELD_NAMES[self.name]
            remove_locked(self.path, self.fd)

    def __enter__(self) -> Self:
        return self

    __exit__ = release


def abandon_locks() -> None:
    """In a forked child: the descriptors are closed and no more, since the locks are the parent's."""
    for lock in HELD_NAMES.values():
        with suppress(OSError):
            os.close(lock.fd)
    HELD_NAMES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=abandon_locks)


def remove_outlived(file: os.DirEntry[str], now: float) -> None:
    """Removes an entry past its lifetime, or what a dead process was about to write; never a file of another name."""
    found = SHELF_FILE.match(file.name)
    if not found or not file.is_file(follow_symlinks=False):
        return
    if now - file.stat(follow_symlinks=False).st_mtime > ENTRY_LIFETIME_SECONDS.get(found[1], ENTRY_LIFETIME_SECONDS[""]):
        os.unlink(file.path)
    elif found[2]:
        fd = open_locked(file.path)
        if fd is not None:
            remove_locked(file.path, fd)


class Shelf:
    """Entries of plain data (what JSON can say, and bytes) by kind and key, one pickle file each in `folder`; None keeps them in memory.

    `warn` gets one line per cause. `wall_time` (Unix seconds) dates the entries. Thread-safe; touches no disk before its first use.
    """

    def __init__(self, folder: str | None, warn: Callable[[str], None], wall_time: Callable[[], float] = time.time) -> None:
        self.folder, self.warn, self.wall_time = folder, warn, wall_time
        self._memory: dict[tuple[str, str], bytes] = {}         # what the disk did not take; it beats what the disk says
        self._robots_bytes = 0                                  # of robots.txt bodies among it, which servers choose
        self._warned: set[str] = set()

    def load(self, kind: str, key: str) -> dict[str, Any] | None:
        """The data last stored under `kind` and `key`, or None; whatever is wrong with the file is a warning and None."""
        blob = self._memory.get((kind, key))
        if blob is None and not self._is_folder_usable():
            return None
        path = self._path(kind, key)
        name = os.path.basename(path)
        try:
            if blob is None:
                blob = read_private_file(path)
                if refusal := pickle_refusal(blob):
                    raise ValueError(refusal)
            entry = plain_unpickler()(blob)
            data = entry["data"]
            if not isinstance(data, dict) or entry != shelf_entry(kind, key, data):
                raise ValueError(f"is no entry of {SHELF_FORMAT} for its name")
            return data
        except FileNotFoundError:
            return None
        except OSError as error:        # one sick disk is one line, not one an entry
            self._say("read", f"cache: {name}: {disk_trouble(error)}; taken as absent")
        except Exception as error:  # noqa: BLE001 - a hostile pickle can end in anything; what its decoder quotes is not shown
            self._say(name, f"cache: {name}: {error if type(error) is ValueError else type(error).__name__}; taken as absent")
        return None

    def store(self, kind: str, key: str, data: dict[str, Any], *, durable: bool = False) -> bool:
        """True where `data` now lies whole on the disk (`durable`: also after a power cut); else this process remembers it."""
        import pickle  # not at the top: see plain_unpickler

        blob = pickle.dumps(shelf_entry(kind, key, data), protocol=4)
        if self._is_folder_usable(create=True):
            for patience in [0.01] * 5 if os.name == "nt" else [0.0] * 2:
                try:
                    write_private_file(self._path(kind, key), blob, self.wall_time(), durable)
                    self.forget(kind, key)
                    return True
                except (OSError, ValueError, OverflowError) as error:       # the last two: a clock whose time no file system can write
                    trouble = disk_trouble(error)
                    time.sleep(patience)    # Windows: another process has the old file open, for microseconds; or a sweep took the new one
            self._say("write", f"cache: {self.folder} cannot be written: {trouble}")
        self.forget(kind, key, blob)
        return False

    def forget(self, kind: str, key: str, instead: bytes = b"") -> None:
        """What the disk did not take is not remembered here either. Of robots.txt bodies up to a bound is, the oldest going first."""
        grown = len(instead) - len(self._memory.pop((kind, key), b""))
        if instead:
            self._memory[kind, key] = instead
        if kind.startswith("robots"):
            self._robots_bytes += grown
            while self._robots_bytes > MAX_REMEMBERED_ROBOTS_BYTES:
                oldest = next(entry for entry in self._memory if entry[0].startswith("robots"))
                self._robots_bytes -= len(self._memory.pop(oldest))

    def try_lock(self, name: str) -> ShelfLock | None:
        """The lock of that name, or None where a process that shares the folder, or any thread of this one, holds it. Never blocks.

        The kernel releases it on death. Where there is no such thing as a lock, this process alone is in order.
        """
        lock = ShelfLock(name)
        if name not in HELD_NAMES and self._is_folder_usable(create=True):
            path = self._path("lock", name) + ".tmp"
            try:
                fd = open_locked(path)
                if fd is None:
                    return None
                lock = ShelfLock(name, path, fd)
            except OSError as error:
                self._say("lock", f"cache: no lock in {self.folder} ({disk_trouble(error)}); other processes are not waited for")
        if HELD_NAMES.setdefault(name, lock) is lock:
            return lock
        remove_locked(lock.path, lock.fd)       # another thread was faster
        return None

    def sweep(self, now: float) -> None:
        """Entries long unused and scratch files of dead processes go away.

        A whole pass a day for all processes; between two of them, only what was being written goes, if it is among the first MAX_SWEEP_FILES.
        """
        if not self._is_folder_usable():
            return
        swept_at = as_number((self.load("sweep", "marker") or {}).get("at"))
        is_due = not is_fresh(swept_at, SWEEP_INTERVAL_SECONDS, now)
        with suppress(OSError), os.scandir(self.folder) as files:       # the next pass finds what this one lost
            for file in files if is_due else islice(files, MAX_SWEEP_FILES):
                with suppress(OSError):
                    remove_outlived(file, now if is_due else -math.inf)
        if is_due:
            self.store("sweep", "marker", {"at": now})

    def _path(self, kind: str, key: str) -> str:
        """Of the entry: no byte of its name was chosen by a server."""
        return os.path.join(self.folder or "", f"{kind}-{sha256_hex(key.encode('utf-8', 'surrogatepass'))[:32]}.pickle")

    def _is_folder_usable(self, create: bool = False) -> bool:
        """Whether the folder is there and ours alone. Asked before each use: folders change under a long run."""
        if self.folder is None:
            return False
        try:
            if create and not os.path.isdir(self.folder):
                make_private_folders(self.folder)
            status = os.stat(self.folder)
            doubt = ownership_doubt(status) if stat.S_ISDIR(status.st_mode) else "is no folder"
        except (OSError, ValueError) as error:      # ValueError: a NUL in the name
            if isinstance(error, FileNotFoundError) and not create:
                return False            # nothing was ever stored
            doubt = disk_trouble(error)
        if doubt:
            self._say("folder", f"cache: {self.folder}: {doubt}; not used")
        return not doubt

    def _say(self, cause: str, line: str) -> None:
        if cause not in self._warned:
            self._warned.add(cause)
            self.warn(line)


# === 14. DOOR   R1 R6   the only socket ====================================
# Owns one HTTP/1.1 exchange: a name, an address that was checked, one connection, one answer. Never follows a redirect, retries or sleeps.
# The wire format is read here, by four patterns: http.client lets bare CR, colon-less lines and contradictory lengths pass.

STATUS_LINE = lazy_re(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r?\n")
HEADER_LINE = lazy_re(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)\r?\n")      # RFC 9110 5.5: no control characters
FOLDED_LINE = lazy_re(rb"[ \t]([\t\x20-\x7e\x80-\xff]*)\r?\n")                               # RFC 9112 5.2: obsolete, one space
CHUNK_LINE = lazy_re(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
SENT_HEADER = lazy_re(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*")
SENT_URL = lazy_re(r"https?://[!-\"$-.0->@-~]+((?:[/?][!-\"$-~]*)?)(?:#[!-~]*)?")       # group 1: path and query, an empty query too
IPV4_LITERAL = lazy_re(r"[0-9]+(?:\.[0-9]+){3}")
INFLATE_WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}      # zlib's wbits
NETWORK_TROUBLE = (OSError, ValueError, ArithmeticError, RuntimeError)      # ssl's errors are OSErrors; a port of 99999 overflows


class Deadline:
    """The time left of one exchange and the stage it is in; `with deadline.during(stage)` turns trouble into a one-line TransportError."""

    def __init__(self, seconds: float) -> None:
        self.seconds = min(seconds, LONGEST_DEADLINE_SECONDS)
        self.ends_at = time.monotonic() + self.seconds
        self.stage = "start"

    def during(self, stage: str) -> Deadline:
        self.stage = stage
        return self

    def remaining(self) -> float:
        seconds = self.ends_at - time.monotonic()
        if seconds <= 0:
            raise self.passed()
        return seconds

    def passed(self) -> TransportError:
        return TransportError(f"no complete answer within {self.seconds:g} s ({self.stage})")

    def __enter__(self) -> None:
        self.remaining()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, NETWORK_TROUBLE):
            return
        import socket  # loaded by now, if anything can have gone wrong on one

        if isinstance(error, socket.timeout) and not error.errno:       # with an errno it is the system's own ETIMEDOUT
            raise self.passed() from None
        raise TransportError(f"{self.stage}: {cause_of(error)}", final=hasattr(error, "verify_message")) from None


def cause_of(error: BaseException) -> str:
    """One line of what went wrong: OpenSSL's words where they are, else the system's."""
    openssl = str(getattr(error, "reason", None) or "").replace("_", " ").lower()
    words = getattr(error, "verify_message", "") or openssl or getattr(error, "strerror", None) or error
    return printable(str(words) or type(error).__name__, 200)


class Wire:
    """A connected socket under a deadline: each call waits for what is left of the time, never longer."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self.connection, self.deadline = connection, deadline
        self.buffer, self.at = b"", 0

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self.connection.settimeout(self.deadline.remaining())
            left = left[self.connection.send(left):]

    def fill(self) -> bool:
        """Whether there is a byte to read; False where the peer has closed."""
        if self.at == len(self.buffer):
            self.connection.settimeout(self.deadline.remaining())
            self.buffer, self.at = self.connection.recv(PIECE_BYTES), 0
        return self.at < len(self.buffer)

    def read(self, size: int) -> bytes:
        """One to `size` bytes, or b"" where the peer has closed."""
        self.fill()
        piece = self.buffer[self.at:self.at + size]
        self.at += len(piece)
        return piece

    def read_line(self, limit: int) -> bytes:
        """Through the next LF; without one where the peer closed, or `limit` bytes held none."""
        line = bytearray()
        while len(line) < limit and not line.endswith(b"\n") and self.fill():
            end = self.buffer.find(b"\n", self.at) + 1 or len(self.buffer)
            line += self.read(min(end - self.at, limit - len(line)))
        return bytes(line)

    def has_more(self) -> bool:
        """Whether bytes have come that nobody read; does not wait for any."""
        return self.at < len(self.buffer)

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        # The handshake is apart, so that an interrupt inside it finds a socket to close.
        self.connection = context.wrap_socket(self.connection, server_hostname=host, do_handshake_on_connect=False)
        self.connection.settimeout(self.deadline.remaining())
        self.connection.do_handshake()

    def close(self) -> None:
        self.connection.close()


def read_head(wire: Wire) -> tuple[int, list[tuple[str, str]]]:
    """Status and headers of the answer; 1xx answers before it are skipped (RFC 9110 15.2)."""
    budget = MAX_HEAD_BYTES
    for _ in range(MAX_INTERIM_ANSWERS + 1):
        status = 0
        headers: list[tuple[str, str]] = []
        for _ in range(MAX_HEADER_LINES + 2):
            line = wire.read_line(budget + 1)
            budget -= len(line)
            if budget < 0:
                raise TransportError(f"answer: header of more than {MAX_HEAD_BYTES} bytes")
            if not line.endswith(b"\n"):
                raise TransportError("answer: connection closed " + ("within the header" if line or status else "without an answer"))
            if not status:
                status = parse_status_line(line)
            elif line in (b"\r\n", b"\n"):
                break
            else:
                add_header_line(headers, line)
        else:
            raise TransportError(f"answer: more than {MAX_HEADER_LINES} header lines")
        if status >= 200:
            return status, headers
        if status == 101:
            raise TransportError("answer: switches to a protocol that nobody asked for (101)")
    raise TransportError(f"answer: more than {MAX_INTERIM_ANSWERS} interim (1xx) answers")


def parse_status_line(line: bytes) -> int:
    match = STATUS_LINE.fullmatch(line)
    if match is None:
        raise TransportError(f"answer: no HTTP/1 status line: {printable(line.decode('latin-1'), 60)}")
    return int(match.group(1))


def add_header_line(headers: list[tuple[str, str]], line: bytes) -> None:
    match, folded = HEADER_LINE.fullmatch(line), FOLDED_LINE.fullmatch(line)
    if match is not None:
        headers.append((match.group(1).decode("ascii").lower(), match.group(2).decode("latin-1").strip(" \t")))
    elif folded is not None and headers:
        name, value = headers[-1]
        headers[-1] = (name, " ".join((value, folded.group(1).decode("latin-1").strip(" \t"))))
    else:
        raise TransportError(f"answer: broken header line: {printable(line.decode('latin-1'), 60)}")


def header_items(headers: list[tuple[str, str]], wanted: str) -> list[str]:
    """The comma-separated items of a header, over all the lines that repeat it."""
    return [item.strip(" \t") for name, value in headers if name == wanted for item in value.split(",")]


def framed_pieces(wire: Wire, headers: list[tuple[str, str]]) -> Iterator[bytes]:
    """The body as it travels, in pieces. Framing is judged at once, not at the first piece (RFC 9112 6.3)."""
    lengths, codings = header_items(headers, "content-length"), header_items(headers, "transfer-encoding")
    if codings and lengths:
        raise TransportError("answer: Content-Length beside Transfer-Encoding")     # RFC 9112 6.1: may be request smuggling
    if codings:
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise TransportError(f"answer: Transfer-Encoding {printable(', '.join(codings), 60)!r}, want chunked")
        return chunked_pieces(wire)
    if not lengths:
        return iter(lambda: wire.read(PIECE_BYTES), b"")                            # ends where the connection does
    if any(not re.fullmatch("[0-9]{1,18}", length) for length in lengths) or len(set(map(int, lengths))) > 1:
        raise TransportError(f"answer: Content-Length {printable(', '.join(lengths), 60)!r}, want one number")
    return sized_pieces(wire, int(lengths[0]))


def counted_pieces(wire: Wire, length: int) -> Iterator[bytes]:
    left = length
    while left:
        piece = wire.read(min(left, PIECE_BYTES))
        if not piece:
            raise TransportError(f"body: connection closed after {length - left} of {length} bytes")
        left -= len(piece)
        yield piece


def sized_pieces(wire: Wire, length: int) -> Iterator[bytes]:
    yield from counted_pieces(wire, length)
    if wire.has_more():
        raise TransportError(f"body: more than the {length} bytes of its Content-Length")


def chunked_pieces(wire: Wire) -> Iterator[bytes]:
    spare = MAX_HEAD_BYTES          # extensions and trailers may not outgrow the data: they cost the server nothing

    def line_of_chunking() -> bytes:
        nonlocal spare
        line = wire.read_line(spare + 1)
        spare -= len(line)
        if spare < 0:
            raise TransportError("body: broken chunking: more around the chunks than in them")
        if not line.endswith(b"\r\n"):
            raise TransportError("body: broken chunking: " + ("a line without CRLF" if line else "connection closed before the last chunk"))
        return line

    while True:
        match = CHUNK_LINE.fullmatch(line_of_chunking())
        if match is None:
            raise TransportError("body: broken chunking: no chunk size where one is due")
        length = int(match.group(1), 16)
        if not length:
            break
        spare += min(16 * length, 1024)
        yield from counted_pieces(wire, length)
        if line_of_chunking() != b"\r\n":
            raise TransportError("body: broken chunking: no CRLF after a chunk")
    while line_of_chunking() != b"\r\n":      # trailers: nothing in them is for us
        pass


def inflated_pieces(pieces: Iterator[bytes], coding: str, limit: int) -> Iterator[bytes]:
    """One Content-Encoding taken off, in pieces; gzip may have several members, what follows the last one is ignored as gzip does."""
    import zlib  # a decision from the cache needs none

    window, decoder, taken = INFLATE_WINDOW[coding], None, 0
    for piece in pieces:
        taken += len(piece)
        if taken > limit + limit // 64 + 4 * PIECE_BYTES:       # so much for so little is stuffing, such as empty members
            raise TransportError(f"body: {coding} data outgrows what it holds")
        if decoder is None:
            if coding == "deflate" and piece[0] & 15 != 8:      # RFC 9110 8.4.1.2: some servers leave zlib's wrapper off
                window = -window
            decoder = zlib.decompressobj(window)
        full = False
        while piece or full:                                    # a full piece may have left more inside the decoder
            if decoder.eof:
                if window != 31 or piece[:1] != b"\x1f":
                    window = 0 if piece else window
                    break
                decoder = zlib.decompressobj(window)
            try:
                data = decoder.decompress(piece, PIECE_BYTES)
            except zlib.error:
                raise TransportError(f"body: broken {coding} data") from None
            if data:
                yield data
            full = len(data) == PIECE_BYTES
            piece = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
    if decoder is not None and not decoder.eof:
        raise TransportError(f"body: {coding} data ends early")


def read_body(pieces: Iterator[bytes], headers: list[tuple[str, str]], limit: int) -> tuple[bytes, bool]:
    """The content-decoded body, at most `limit` bytes of it, and whether it was cut. A bomb costs one piece a coding beyond that."""
    codings = [coding.lower() for coding in header_items(headers, "content-encoding") if coding.lower() not in ("", "identity")]
    if len(codings) > MAX_CONTENT_CODINGS:
        raise TransportError(f"body: {len(codings)} Content-Encodings on each other, want at most {MAX_CONTENT_CODINGS}", final=True)
    for coding in reversed(codings):
        if coding not in INFLATE_WINDOW:
            raise TransportError(f"body: Content-Encoding {printable(coding, 60)!r} is not one that we asked for", final=True)
        pieces = inflated_pieces(pieces, coding, limit)
    body = io.BytesIO()             # getvalue() hands its own buffer over: joined pieces would be held twice
    for piece in pieces:
        room = limit - body.tell()
        body.write(piece[:room])
        if len(piece) > room:
            return body.getvalue(), True
    return body.getvalue(), False


def look_up(host: str, port: int, deadline: Deadline) -> list[tuple[int, Any]]:
    """(family, socket address) of a name, in the system's order. getaddrinfo knows no deadline: it gets a thread that may be left."""
    import socket
    import threading

    answers: list[Any] = []
    name = host.strip("[]")

    def ask() -> None:
        try:
            answers.append(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        except NETWORK_TROUBLE as error:
            answers.append(error)

    if ":" in name or IPV4_LITERAL.fullmatch(name):
        ask()
    else:
        resolver = threading.Thread(target=ask, name="walsh-research resolver", daemon=True)
        resolver.start()
        resolver.join(deadline.remaining())
    if not answers:
        raise deadline.passed()
    answer = answers[0]
    lasting = [getattr(socket, code, None) for code in ("EAI_NONAME", "EAI_NODATA")]
    if answer == [] or isinstance(answer, UnicodeError) or (isinstance(answer, socket.gaierror) and answer.errno in lasting):
        raise TransportError(f"name: {host} does not exist", final=True)
    if isinstance(answer, Exception):
        raise answer
    return list(dict.fromkeys((family, address) for family, _, _, _, address in answer))


def connect_to_first(addresses: list[tuple[int, Any]], deadline: Deadline) -> socket.socket:
    """The first address that answers; each gets its share of the time that is left, so that a dead one does not eat it all."""
    import socket

    addresses = addresses[:MAX_ADDRESSES_TRIED]
    for still_to_try, (family, address) in zip(range(len(addresses), 0, -1), addresses):
        connection = None
        try:
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.settimeout(deadline.remaining() / still_to_try)
            connection.connect(address)
            connected, connection = connection, None
            return connected
        except OSError:
            if still_to_try == 1:
                raise
        finally:
            if connection is not None:
                connection.close()
    raise OSError("no address to connect to")


class Proxy(NamedTuple):
    host: str
    port: int
    authorization: str          # the value of Proxy-Authorization, or ""


def parse_proxy(value: str, variable: str) -> Proxy:
    """A proxy setting, `http://[user:password@]host[:port]`. No reason shows it: a stray sign makes any part of it a password."""
    malformed = TransportError(f"{variable} is no proxy that can be used, want http://[user:password@]host[:port]", final=True)
    value = value.strip()
    try:
        parts = split_url(value if "://" in value else f"http://{value}")
    except ValueError:
        raise malformed from None
    if parts.scheme != "http" or not parts.host or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise malformed
    port = DEFAULT_PORTS["http"] if parts.port is None else parts.port
    if not parts.userinfo:
        return Proxy(parts.host, port, "")
    import binascii
    from urllib.parse import unquote_to_bytes  # rarely needed

    user, _, password = parts.userinfo.partition(":")
    credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return Proxy(parts.host, port, "Basic " + binascii.b2a_base64(credentials, newline=False).decode("ascii"))


class Route(NamedTuple):
    """Where a wire URL leads."""

    scheme: str
    host: str                   # as in the URL: IPv6 stands in brackets
    port: int
    target: str                 # path and query as the URL has them, an empty query too
    proxy: Proxy | None

    def authority(self, with_port: bool = False) -> str:
        return f"{self.host}:{self.port}" if with_port or self.port != DEFAULT_PORTS[self.scheme] else self.host


class Door:
    """The default transport: one connection an exchange, to the address that was checked.

    `send(request)` gives a Response or raises TransportError; `resolve(url, timeout)` asks where a request would go, and pins it.
    `proxies` is a dict as `{"http": "http://proxy:3128", "https": ..., "no": "internal.test"}`; {} is none, None reads the environment.
    """

    def __init__(self, allow_private: bool = False, proxies: dict[str, str] | None = None) -> None:
        self.allow_private, self.proxies = allow_private, proxies
        self.pins: dict[tuple[str, int], tuple[float, list[tuple[int, Any]]]] = {}
        self.tls_context: ssl.SSLContext | None = None

    def resolve(self, url: str, timeout: float) -> None:
        """None where a request for `url` may go; TransportError: `refused` where an address is not public, `final` where there is none."""
        deadline = Deadline(timeout)
        with deadline.during("name"):
            route = self.route(url)
            if route.proxy is None:     # else names are the proxy's business
                self.addresses(route, deadline)

    def send(self, request: Request) -> Response:
        """One exchange within `request.timeout` seconds. An answer of any status is a Response; anything else is a TransportError."""
        deadline = Deadline(request.timeout)
        with deadline.during("request"):
            route = self.route(request.url)
            head = self.request_head(request, route)
        try:
            with deadline.during("name"):
                addresses = self.addresses(route, deadline)
            with deadline.during("connect"):
                wire = Wire(connect_to_first(addresses, deadline), deadline)
        except TransportError as error:
            if route.proxy is None or error.refused:
                raise
            # Final: that our own proxy is out of reach is no fault of the target's host, and holds nobody back.
            raise TransportError(f"proxy {route.proxy.host}:{route.proxy.port}: {error.reason}", final=True) from None
        try:
            if route.scheme == "https":
                self.secure(wire, route, request.headers.get("User-Agent", ""))
            with deadline.during("request"):
                wire.write(head)
            if request.departed is not None:
                request.departed()
            with deadline.during("answer"):
                status, headers = read_head(wire)
                if route.proxy and status == 407:
                    raise TransportError("proxy: wants other credentials (407)", final=True)
                pieces = framed_pieces(wire, headers)
            if request.method == "HEAD" or status in (204, 304) or (request.wants is not None and not request.wants(status, headers)):
                return Response(status, headers, b"")
            with deadline.during("body"):
                body, truncated = read_body(pieces, headers, request.max_bytes)
            return Response(status, headers, body, truncated)
        finally:
            wire.close()

    def route(self, url: str) -> Route:
        """Where a wire URL leads; refused here where the host's spelling already tells, proxy or not."""
        match = SENT_URL.fullmatch(url)
        if match is None:
            raise TransportError(f"request: {printable(mask_credentials(url), 100)} is not an http(s) URL in ASCII", final=True)
        try:
            parts = split_url(url)
        except ValueError as error:
            raise TransportError(f"request: {cause_of(error)}", final=True) from None
        refusal = "" if self.allow_private else host_refusal(parts.host)
        if refusal:
            raise TransportError(refusal, final=True, refused=True)
        port = DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
        target = match.group(1) if match.group(1).startswith("/") else f"/{match.group(1)}"
        route = Route(parts.scheme, parts.host, port, target, None)
        return route._replace(proxy=self.proxy_for(route))

    def proxy_for(self, route: Route) -> Proxy | None:
        proxies = self.proxies
        if proxies is None:
            if not any(name.lower() in ("http_proxy", "https_proxy") for name in os.environ):
                return None
            # slow to load: it brings http.client and email along
            from urllib.request import getproxies_environment

            proxies = getproxies_environment()
        value = proxies.get(route.scheme)
        if not value:
            return None
        from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed knows it on no system

        if proxy_bypass_environment(route.authority(with_port=True), proxies) or proxy_bypass_environment(route.host.strip("[]"), proxies):
            return None
        variable = f"{route.scheme}_proxy"
        return parse_proxy(value, variable if self.proxies is not None or variable in os.environ else variable.upper())

    def addresses(self, route: Route, deadline: Deadline) -> list[tuple[int, Any]]:
        """Where to connect to: all addresses of the name, refused if any is not public. A pin keeps a second answer from mattering."""
        if route.proxy:                 # it may well stand on a private address
            return look_up(route.proxy.host, route.proxy.port, deadline)
        key = (route.host, route.port)
        pinned_at, addresses = self.pins.get(key, (0.0, []))
        if addresses and time.monotonic() < pinned_at + PIN_SECONDS:
            return addresses
        addresses = look_up(route.host, route.port, deadline)
        for _, address in addresses if not self.allow_private else ():
            refusal = address_refusal(address[0])
            if refusal:
                raise TransportError(f"{route.host}: {refusal}", final=True, refused=True)
        self.pins.pop(key, None)
        if len(self.pins) >= MAX_PINS:
            self.pins.pop(next(iter(self.pins)), None)
        self.pins[key] = (time.monotonic(), addresses)
        return addresses

    def request_head(self, request: Request, route: Route) -> bytes:
        if request.method not in ("GET", "HEAD"):
            raise TransportError(f"request: method {printable(request.method, 20)!r}, want GET or HEAD", final=True)
        target, lines = route.target, [f"Host: {route.authority()}", "Connection: close"]
        if route.proxy and route.scheme == "http":
            target = f"http://{route.authority()}{target}"
            lines += [f"Proxy-Authorization: {route.proxy.authorization}"] if route.proxy.authorization else []
        return head_bytes(f"{request.method} {target} HTTP/1.1", lines + [f"{name}: {value}" for name, value in request.headers.items()])

    def secure(self, wire: Wire, route: Route, user_agent: str) -> None:
        """TLS with the certificate and the host name verified, behind CONNECT where there is a proxy."""
        deadline = wire.deadline
        if route.proxy:
            with deadline.during("proxy"):
                authority = route.authority(with_port=True)
                lines = [f"Host: {authority}"] + ([f"User-Agent: {user_agent}"] if user_agent else [])
                lines += [f"Proxy-Authorization: {route.proxy.authorization}"] if route.proxy.authorization else []
                wire.write(head_bytes(f"CONNECT {authority} HTTP/1.1", lines))
                status, _ = read_head(wire)
                if status != 200:
                    raise TransportError(f"proxy: answers {status} to CONNECT, want 200", final=status < 500)
                if wire.has_more():
                    raise TransportError("proxy: sends bytes before the TLS handshake")
        with deadline.during("TLS"):
            if self.tls_context is None:
                self.tls_context = verifying_tls_context()
            wire.start_tls(self.tls_context, route.host.strip("[]"))


def head_bytes(request_line: str, header_lines: list[str]) -> bytes:
    """The bytes of a request head; a value that could begin another line does not leave (header injection)."""
    for line in header_lines:
        if not SENT_HEADER.fullmatch(line):
            raise TransportError(f"request: header {printable(line.partition(':')[0], 60)!r} cannot be sent as it is", final=True)
    return "\r\n".join([request_line, *header_lines, "", ""]).encode("latin-1")


def verifying_tls_context() -> ssl.SSLContext:
    """Certificates and host names are always verified: there is no switch. OpenSSL itself honours SSL_CERT_FILE and SSL_CERT_DIR."""
    import ssl  # slow to load, and http needs none

    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    bundle = os.environ.get("SSL_CERT_FILE")
    if bundle:              # OpenSSL passes over one that it cannot read: every site would then look self-signed
        try:
            context.load_verify_locations(cafile=bundle)
        except OSError as error:
            raise TransportError(f"TLS: SSL_CERT_FILE {printable(bundle, 100)}: {cause_of(error)}", final=True) from None
    return context


# === 15. BOT   R3b R4 R5 R6 R8   spec 7 ==================================
# Owns the gates in order, every piece of mutable state, and the loop that takes targets through both.

if TYPE_CHECKING:
    Clock = Any                 # time() in Unix seconds, monotonic() in seconds, sleep(seconds)
    Transport = Any             # send(Request) -> Response, or TransportError; optionally resolve(url, timeout)
    T = TypeVar("T")
    Steps = Generator["Later", None, T]     # work that says when it wants to go on, and at last returns a T


class Later(NamedTuple):
    """Not yet: go on at `at`, on the monotonic clock."""

    at: float
    gate: str
    reason: str


# What the rooms above the waterline leave open.

class NoLock:
    """Where nobody else could come in between."""

    def release(self) -> None:
        """Nothing is held."""


NO_LOCK = NoLock()


class BlocklistState(NamedTuple):
    """When the blocklist was last asked about. Times are Unix seconds, -inf for never."""

    serial: int = 0                     # of the generation on the shelf
    checked_at: float = -math.inf       # last known to be current
    failed_at: float = -math.inf
    retry_at: float = -math.inf         # not to be asked again before
    validators: Validators = Validators()
    status: int = 0                     # of the last answer in this process


def next_step(steps: Steps[T]) -> tuple[Later | None, T | None]:
    """A step further: when to go on, or what came of it."""
    try:
        return next(steps), None
    except StopIteration as stop:
        return None, stop.value


def log_warning(line: str) -> None:
    import logging  # slow to import; most runs have nothing to warn of
    logging.getLogger("walsh_research").warning("%s", line)


class SystemClock:
    """The clock of a real run."""

    jitter_seconds = 0.03       # ours: how much earlier a server may see the second of two requests than we count

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


PARSE_ERROR_WARNING = "robots.txt is not text: what of it can be read is obeyed, the rest says nothing (allowed_but_warn)"
ASK_AGAIN = Decision(False, "", reason="a wait is over: an opt-out may have come meanwhile, so every gate is asked again")
SLOTLESS_KINDS = ("robots", *CANONICAL_KINDS)       # a host's first of these takes no slot; robots2.txt, its chain and its questions do


class Pacer:
    """R4: what all bots of a process share: one door, and each host's pace (on the monotonic clock)."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock                          # kept alive, so that its id stays its own
        self.door = _thread.RLock()               # held for a step, never for a sleep
        self.hosts: dict[str, HostPace] = {}
        self.asked: set[str] = set()                # policy documents that took no slot: only a first one takes none
        self.on_disk: dict[str, dict[str, Any]] = {}    # what this process last wrote, to know what others wrote since


SYSTEM_CLOCK = SystemClock()
SYSTEM_PACER = Pacer(SYSTEM_CLOCK)
OTHER_PACERS: collections.OrderedDict[int, Pacer] = collections.OrderedDict()      # by id of the clock: each simulation has a time of its own


def pacer_of(clock: Clock) -> Pacer:
    """One pacer for each notion of time."""
    if isinstance(clock, SystemClock):
        return SYSTEM_PACER
    pacer = OTHER_PACERS.setdefault(id(clock), Pacer(clock))
    while len(OTHER_PACERS) > MAX_PACERS:
        OTHER_PACERS.popitem(last=False)
    return pacer


def forget_parent() -> None:
    """After fork: locks that another thread of the parent held would never be released here."""
    for pacer in (SYSTEM_PACER, *OTHER_PACERS.values()):
        pacer.door = _thread.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_parent)


class Visit:
    """One URL on its way: as asked, where it is now, and what it has been through."""

    __slots__ = (
        "answers", "at", "attempts", "decision", "has_strayed", "host", "kind", "known", "lock", "redirects", "retries", "retry_at",
        "sent_validators", "site", "slot", "started_at", "transport_retries", "trouble", "url", "waited", "waits", "wants", "warnings",
    )

    def __init__(self, kind: str, url: str, wire: str, now: float) -> None:
        self.kind, self.url = kind, url
        self.redirects: list[str] = []
        self.attempts = self.retries = 0
        self.waited, self.started_at = 0.0, now
        self.lock: Any = None                       # the host's, from the claim of a slot until the request has left
        self.decision = Decision(True, url)         # the latest that let it pass
        self.known: dict[str, Any] = {}             # what the shelf holds of this source (R7, R8)
        self.sent_validators = False
        self.retry_at: float | None = None          # where this ends for now (R5)
        self.trouble = ""                           # why it cannot go on
        self.has_strayed = False                    # redirected to where it must not follow
        self.warnings: list[str] = []
        self.transport_retries = KINDS[kind].transport_retries
        self.wants: Callable[[int, Sequence[tuple[str, str]]], bool] = wants_any_success if kind in MAX_BYTES_OF else wants_body
        self.move(wire)

    def move(self, wire: str) -> None:
        self.at, self.site, self.host, self.slot = wire, site_key(wire), host_key(wire), -math.inf
        self.waits = 0                              # for the slot of the next request
        self.answers: dict[str, AskAnswer] = {}     # of the site, for this one request (robots2: allow-once)

    @property
    def only_looks(self) -> bool:
        """After one wait the gates ask again for what is stale by then; after another they look at what is held, or it would never end."""
        return self.waits > 1

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()
            self.lock = None


class Lane:
    """The targets of one host that wait for their turn."""

    __slots__ = ("host", "queue", "since", "steps", "visit")

    def __init__(self, host: str, since: float) -> None:
        self.host, self.since = host, since
        self.queue: collections.deque[str] = collections.deque()
        self.visit: Visit | None = None
        self.steps: Steps[Result] | None = None


class Bot:
    """A conformant bot: every request passes blocklist (R3), address check, robots.txt (R2) and throttle (R4), in that order.

    `cache_dir=None` keeps everything in memory. `timeout` is for one whole exchange and `max_wait` how far away a permitted start may be before a
    target is "deferred", both in seconds; `max_bytes` bounds a decoded body. `unreachable` is "allow" (spec 9.1.1) or "defer" (RFC 9309 2.3.1.4).
    `robots2` is True or an agent category; `tag` "ORG/REPO[@SHA]" (R13); `interactive` is for a person at a prompt (spec 1.1) and alone permits
    `robots_mode` "report_only" and "ignore". `transport`, `clock`, `rand`, `warn` and `trace` are for tests, simulations and commands.
    ValueError: an argument that would break a promise.
    """

    def __init__(self, cache_dir: Any = PLATFORM_CACHE, *, origin: str = ORIGIN, timeout: float = 30.0, max_wait: float = 300.0,
                 max_bytes: int = 10 * 2**20, unreachable: str = "allow", robots_mode: str = "respect", robots2: bool | str = False,
                 interactive: bool = False, allow_private: bool = False, tag: str | None = None, transport: Transport = None,
                 clock: Clock = None, rand: Callable[[], float] = roll, warn: Callable[[str], None] | None = None,
                 trace: Callable[[str], None] | None = None) -> None:
        require_choice("unreachable", unreachable, ("allow", "defer"))
        require_choice("robots_mode", robots_mode, ("respect", "report_only", "ignore"))
        if robots_mode != "respect" and not interactive:
            raise ValueError(f"robots_mode={robots_mode!r} is for a person at a prompt (interactive=True, spec 1.1): R2 is a MUST")
        for name, value in (("timeout", timeout), ("max_bytes", max_bytes)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}, want a positive number")
        if not max_wait >= 0:
            raise ValueError(f"max_wait is {max_wait!r}, want seconds, 0 or more")
        self._origin = site_of(wire_url(origin))
        refusal = "" if allow_private else host_refusal(split_url(self._origin).host)
        if refusal:
            raise ValueError(f"origin {self._origin}: {refusal}, so that every opt-out would be lost; allow_private permits it")
        self._origin_host = host_key(self._origin)
        self._timeout, self._max_wait, self._max_bytes = timeout, max_wait, max_bytes
        self._patience = 2 * timeout                # with a lock, which nobody who lives holds for longer than an exchange
        self._unreachable, self._robots_mode, self._interactive = unreachable, robots_mode, interactive
        self._category = "" if robots2 is False else ROBOTS2_CATEGORY if robots2 is True else robots2
        if self._category:
            robots2_identity(self._category)        # one that cannot be announced is a ValueError here
        self._allow_private = allow_private
        self._tag = parse_tag(tag) if tag else None
        if interactive:
            self._tag = (self._tag[0] if self._tag else TOOL_NAME, "repl")      # spec 1.1
        self._clock = clock if clock is not None else SYSTEM_CLOCK
        self._margin = getattr(self._clock, "jitter_seconds", PACE_MARGIN_SECONDS)
        self._transport = transport if transport is not None else Door(allow_private=allow_private)
        self._rand, self._trace = rand, trace
        self._said: set[str] = set()
        self.last_result: Result | None = None      # of the target that `discover` read
        self._tell = warn if warn is not None else log_warning
        folder = default_cache_dir(os.environ, sys.platform) if cache_dir is PLATFORM_CACHE else cache_dir
        self._shelf = Shelf(None if folder is None else os.fspath(folder), self._warn, self._clock.time)
        self._is_shared = folder is not None        # with other processes
        if folder is None and cache_dir is not None:
            self._warn("cache: no home folder is known; nothing is remembered between runs, nor shared with other processes")
        self._pacer = pacer_of(self._clock)
        self._robots: collections.OrderedDict[str, RobotsState] = collections.OrderedDict()
        self._robots_bytes = 0
        self._blocklist: Blocklist | None = None
        self._blocklist_state = BlocklistState()
        self._robots2: dict[str, tuple[RobotsState, Robots2 | None]] = {}
        self._lanes: list[Lane] = []
        self.hosts_left = 0                         # of the run that goes on: hosts with targets still to be asked for
        self._waits_for = ("", "")                  # host and reason, for whoever watches
        self._errands: dict[str, tuple[Steps[Decision | None], Later | None]] = {}
        if interactive and not (sys.stdin is not None and sys.stdin.isatty()):
            self._warn("interactive=True without a terminal: R4 and R5 are off, which is for a person at a prompt alone (spec 1.1)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left open between two requests; what is old goes from the cache."""
        self._errands.clear()
        self._shelf.sweep(self._clock.time())

    # --- What callers ask -------------------------------------------------

    def may_fetch(self, url: str, wait: bool = True) -> Decision:
        """The gates of spec 7 in order: R3, address, R2, R4. True where `url` may be requested now.

        `wait=True` takes the host's slot and returns when it is due; the caller then sends its one request. `wait=False` asks without taking
        or waiting for a slot of the target. Policy documents that are stale are waited for either way (R12). A bad URL is a refusal with its reason.
        """
        try:
            visit = Visit("target", str(url), wire_url(str(url)), self._clock.monotonic())
        except ValueError as error:
            return Decision(False, mask_credentials(str(url)), reason=str(error))
        try:
            decision = self._drive(self._gates(visit, with_slot=wait))
        finally:
            visit.release()
        return decision._replace(waited=visit.waited)

    def fetch(self, url: str, fresh: bool = False) -> Result:
        """One target through every gate, to its end. Policy, network and server trouble never raise: they are outcomes.

        A page that has not changed since the last fetch is "unchanged" and has no body (R7); `fresh=True` asks for it anew.
        """
        return self._drive(self._target(url, wants=wants_body if fresh else None))

    def probe(self, url: str) -> Result:
        """As fetch, with one retry instead of five where there is no HTTP answer: for the fixtures of the self-test."""
        return self._drive(self._target(url, kind="fixture"))

    def run(self, urls: Iterable[str], min_age: float = 3600.0) -> Iterator[Result]:
        """Many targets, strictly serial, each host at its own pace and no host waiting for another; a Result each as it is done.

        De-duplicated by canonical URL (R7); a source that was fetched less than `min_age` seconds ago is skipped (R8).
        """
        urls = [urls] if isinstance(urls, str) else urls
        first_spelling: dict[str, str] = {}
        lanes: dict[str, Lane] = {}
        for url in map(str, urls):
            try:
                wire = wire_url(url)
                key, host = canonical_url(wire), host_key(wire)
            except ValueError as error:
                yield self._result("failed", url, reason=str(error))
                continue
            if key in first_spelling:
                yield self._result("skipped", url, reason=f"the same source as {first_spelling[key]} (R7)")
                continue
            first_spelling[key] = url
            if host not in lanes:
                lanes[host] = Lane(host, math.inf)      # its first target waits for no pace, only for its turn
            lanes[host].queue.append(url)
        yield from self._schedule(list(lanes.values()), min_age)

    def discover(self, url: str) -> Iterator[Source]:
        """The structured forms of a source, in R9's order: a feed, markdown, llms.txt; then sitemaps, listed and never followed.

        The target is read; feeds that its head advertises are listed. Every request passes every gate. A target that was denied or failed
        yields nothing; `last_result` is its Result.
        """
        result = self._drive(self._target(url, wants=wants_structured))     # read afresh: a 304 would have no items
        self.last_result = result
        if not result.ok:
            return
        found = self._source_of(result)
        if found is not None:
            yield found
        named = {(found.kind, found.url)} if found is not None else set()
        for feed in result.metadata.get("feeds", ()):
            if ("feed", feed["url"]) not in named:
                named.add(("feed", feed["url"]))
                yield Source("feed", feed["url"], [], feed["title"])
        if found is None or found.kind == "markdown":
            llms = self._drive(self._target(resolve_url(result.final_url, "/llms.txt"), wants=wants_body))
            if llms.ok and llms.body and media_kind(content_type_of([("content-type", llms.content_type)])[0]) in ("markdown", "text", "other"):
                parsed = parse_llms_txt(llms.text, llms.final_url)
                yield Source("llms.txt", llms.final_url, list(parsed.links), parsed.title)
        state = self._robots.get(site_key(result.final_url))
        for sitemap in dict.fromkeys(state.robots.sitemaps if state and state.robots else ()):
            if ("sitemap", sitemap) not in named:
                yield Source("sitemap", sitemap)

    def _source_of(self, result: Result) -> Source | None:
        """What the target itself is, if it is one of the structured forms."""
        kind = media_kind(content_type_of([("content-type", result.content_type)])[0])
        if kind == "markdown":
            return Source("markdown", result.final_url, list(result.links), result.title)
        if kind == "html" or not result.body:
            return None
        try:
            feed = parse_feed(result.body, result.content_type, result.final_url)
            return Source("feed", result.final_url, list(feed.items), feed.title, feed.warning)
        except ValueError:
            pass
        try:
            sitemap = parse_sitemap(result.body, result.final_url)
            return Source("sitemap", result.final_url, list(sitemap.entries), "", sitemap.warning)
        except ValueError:
            return None

    def attest(self) -> dict[str, Any]:
        """The attestation document of spec 14, measured: a requirement is true because its checks just passed in the sandbox."""
        return attest()     # the one look downwards of this file: the proof needs the bot

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def blocklist_status(self) -> int:
        """The HTTP status of the last answer to a request for the list; 0 where there was none."""
        return self._blocklist_state.status

    @property
    def blocklist_size(self) -> int:
        """Entries of the list that is in force; 0 also where none was ever adopted."""
        return len(self._blocklist) if self._blocklist is not None else 0

    def outlook(self) -> tuple[str, str, float]:
        """For whoever watches a run: the host that it waits for, why, and about how many seconds are left."""
        left = [(len(lane.queue) + (lane.steps is not None)) * max(self._pacer.hosts.get(lane.host, UNSEEN_HOST).interval, MIN_REQUEST_INTERVAL)
                for lane in self._lanes if lane.queue or lane.steps is not None]
        return (*self._waits_for, max(left, default=0.0))

    # --- The loop ---------------------------------------------------------

    def _schedule(self, lanes: list[Lane], min_age: float) -> Iterator[Result]:
        """Serial, and never idle while some host may be asked: of those that may, the one with the most time still before it."""
        self._lanes, self.hosts_left = lanes, len(lanes)
        order = itertools.count()
        waiting = [(-math.inf, next(order), lane) for lane in lanes]
        ready: list[tuple[float, int, Lane]] = []
        while waiting or ready:
            now = self._clock.monotonic()
            while waiting and waiting[0][0] <= now:
                lane = heapq.heappop(waiting)[2]
                pace = self._pacer.hosts.get(lane.host, UNSEEN_HOST)
                heapq.heappush(ready, (-len(lane.queue) * max(pace.interval, MIN_REQUEST_INTERVAL), next(order), lane))
            if not ready:
                self._waits_for = waiting[0][2].host, self._why_it_waits(waiting[0][2].host, now)
                self._nap(waiting[0][0])
                continue
            lane = heapq.heappop(ready)[2]
            if lane.steps is None:
                url = lane.queue.popleft()
                lane.steps = self._target(url, min_age, lane)
            with self._pacer.door:
                later, result = next_step(lane.steps)
            if later is None:
                lane.visit = lane.steps = None
                lane.since = self._clock.monotonic()
                if lane.queue:
                    due_at = self._due_at(lane.host)
                    if self._trace is not None and due_at - lane.since > LOCK_POLL_SECONDS:
                        self._say(f"{printable(mask_credentials(lane.queue[0]))}: waits {spell_seconds(due_at - lane.since)}: its host's pace")
                    heapq.heappush(waiting, (due_at, next(order), lane))
                else:
                    self.hosts_left -= 1
                yield result        # type: ignore[misc]
            else:
                if lane.queue and lane.visit is not None and lane.visit.host != lane.host:      # redirected: no host waits for another
                    rest = Lane(lane.host, lane.since)
                    rest.queue, lane.queue = lane.queue, rest.queue
                    heapq.heappush(waiting, (self._due_at(rest.host), next(order), rest))
                    self.hosts_left += 1
                    lane.host = lane.visit.host
                heapq.heappush(waiting, (later.at, next(order), lane))

    def _due_at(self, host: str) -> float:
        """When a lane should come up again: when its host may next be asked, or at once to be told that this is too far away."""
        if self._interactive:
            return -math.inf
        start = next_start(self._pacer.hosts.get(host, UNSEEN_HOST), MIN_REQUEST_INTERVAL + self._margin, follows_policy=False)
        return start if start - self._clock.monotonic() <= self._max_wait else -math.inf

    def _why_it_waits(self, host: str, now: float) -> str:
        pace = self._pacer.hosts.get(host, UNSEEN_HOST)
        asked = round(pace.interval - self._margin, 2)
        return pace.why if pace.not_before > now else f"Crawl-delay {asked:g}" if asked > MIN_REQUEST_INTERVAL else ""

    def _nap(self, until: float) -> None:
        """Asleep until then, or for so long as a clock can be asked for; whoever wakes looks again."""
        self._clock.sleep(min(max(LEAST_SLEEP_SECONDS, until - self._clock.monotonic()), MAX_SLEEP_SECONDS))

    def _drive(self, steps: Steps[T]) -> T:
        """Steps to their end, sleeping between them with nothing held."""
        while True:
            with self._pacer.door:
                later, value = next_step(steps)
            if later is None:
                return value        # type: ignore[return-value]
            self._waits_for = "", later.reason
            self._nap(later.at)

    # --- One target -------------------------------------------------------

    def _target(self, url: str, min_age: float = 0.0, lane: Lane | None = None,
                wants: Callable[[int, Sequence[tuple[str, str]]], bool] | None = None, kind: str = "target") -> Steps[Result]:
        """A declared target, from its line in the list to its Result. No exception of one target reaches another."""
        url, started_at = str(url), self._clock.monotonic()
        try:
            wire = wire_url(url)
            key = canonical_url(wire)
        except ValueError as error:
            return self._result("failed", url, reason=str(error))
        try:
            visit = Visit(kind, url, wire, started_at)
            visit.wants = visit.wants if wants is None else wants
            visit.known = source_from_entry(self._shelf.load("source", key) if wants is None else None)     # who wants a body sends no validators
            age = self._clock.time() - visit.known.get("at", -math.inf)
            if 0.0 <= age < min_age:
                return self._result("skipped", url, reason=f"fetched {spell_seconds(age)} ago; R8 asks it again after {spell_seconds(min_age)}",
                                    retry_at=self._clock.time() - age + min_age)
            if lane is not None:
                lane.visit, visit.waited = visit, max(0.0, started_at - lane.since)
            answer = yield from self._carry(visit)
            result = self._conclude(visit, answer)
            if result.ok:
                self._remember(key, visit, result)
            return result
        except Exception as error:  # noqa: BLE001 - ours: a bug, or memory that ran out, costs one target
            self._warn(f"unexpected {type(error).__name__} at {mask_credentials(url)}: {error}")
            return self._result("failed", url, reason=f"unexpected {type(error).__name__}: {error}")

    def _carry(self, visit: Visit) -> Steps[Response | TransportError | Decision]:
        """A URL to its end: every gate before every request, whether that is the first, a retry or a hop of a redirect."""
        try:
            while True:
                decision = yield from self._gates(visit)
                if not decision:
                    return decision
                answer = self._exchange(visit)
                if not self._goes_on(visit, answer):
                    return answer
        finally:
            visit.release()

    def _gates(self, visit: Visit, with_slot: bool = True) -> Steps[Decision]:
        """spec 7: blocklist, (address,) robots.txt, throttle, in this order; the first that refuses ends it."""
        gates = GATES_OF[visit.kind] if with_slot else GATES_OF[visit.kind][:-1]
        while True:
            for gate in gates:
                refusal = yield from gate(self, visit)
                if refusal is not None:
                    break
            else:
                return visit.decision
            if refusal is not ASK_AGAIN:
                return refusal

    def _goes_on(self, visit: Visit, answer: Response | TransportError) -> bool:
        """Whether there is another request to be made for this visit: a hop, or a retry."""
        if isinstance(answer, TransportError):
            return not answer.final and self._retries(visit, visit.transport_retries, None, answer.reason)
        if answer.status in REDIRECT_STATUSES:
            return self._is_redirected(visit, answer)
        if answer.status in BACKOFF_STATUSES:       # R5
            asked = [parse_retry_after(value, self._clock.time()) for name, value in answer.headers if name == "retry-after"]
            retry_after = max((seconds for seconds in asked if seconds is not None), default=None)
            return self._retries(visit, DEFAULT_MAX_RETRIES, retry_after, f"{visit.host} answered {answer.status}")
        return False

    def _retries(self, visit: Visit, limit: int, retry_after: float | None, why: str) -> bool:
        """R5: holds the host back, and says whether this visit tries again in this run."""
        if self._interactive or not limit:
            return False
        is_last = visit.retries >= limit
        if is_last and limit < DEFAULT_MAX_RETRIES:     # a policy document that no network reached holds nobody back
            return False
        delay = max(HOLD_AFTER_LAST_RETRY_SECONDS, retry_after or 0.0) if is_last else backoff_delay(visit.retries, retry_after, self._rand)
        delay = min(delay, MAX_HOLD_SECONDS)
        self._hold(visit.host, delay, why)
        if not is_last and delay <= self._max_wait:
            visit.retries += 1
            self._say(f"{why}: retry {visit.retries} in {spell_seconds(delay)}")
            return True
        visit.retry_at = self._clock.time() + delay
        asks = "asks for" if retry_after is not None else "the next try would be in"
        visit.trouble = f"{why}; " + (f"gave up after {visit.retries} retries" if is_last else f"{asks} {spell_seconds(delay)}")
        return False

    def _is_redirected(self, visit: Visit, answer: Response) -> bool:
        """A hop is a new URL: it goes through every gate. (spec 19, C6)"""
        location = header_value(answer.headers, "location")
        with suppress(UnicodeError):        # headers come as latin-1; what servers mean beyond ASCII is UTF-8
            location = location.encode("latin-1").decode("utf-8")
        if not location:
            visit.trouble = f"{answer.status} without a Location"
            return False
        if len(visit.redirects) >= KINDS[visit.kind].max_redirects:
            visit.trouble = f"more than {KINDS[visit.kind].max_redirects} redirects"
            return False
        try:
            target = wire_url(resolve_url(visit.at, self._untagged(location)))
        except ValueError as error:
            visit.trouble, visit.has_strayed = f"redirect refused: {error}", True
            return False
        if visit.kind in CANONICAL_KINDS and not is_kin(split_url(self._origin).host, target):
            visit.trouble, visit.has_strayed = f"redirect refused: {printable(target)} is not https on the host of {self._origin}", True
            return False
        visit.redirects.append(target)
        visit.move(target)
        return True

    # --- R1: the one door -------------------------------------------------

    def _exchange(self, visit: Visit) -> Response | TransportError:
        """The only caller of the transport. The gates have just passed; the host's slot is ours."""
        validators = self._validators(visit)
        visit.sent_validators = validators != Validators()
        url = visit.at
        if self._tag is not None and visit.host == self._origin_host:       # R13: at transmission, after the gates
            url = tag_url(url, *self._tag)
        headers = request_headers(visit.kind, validators, self._announcement(visit))
        request = Request("HEAD" if visit.kind == "ask" else "GET", url, headers, self._timeout,
                          MAX_BYTES_OF.get(visit.kind, self._max_bytes), visit.wants, lambda: self._departed(visit))
        visit.attempts += 1
        self._say(f"{request.method} {printable(url)}")
        try:
            answer: Response | TransportError = as_response(self._transport.send(request))
        except TransportError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - a transport's bug is no answer either
            answer = TransportError(f"unexpected {type(error).__name__}: {printable(str(error))}")
        finally:
            visit.release()
            visit.slot = -math.inf      # spent: a retry claims its own (R4), and asks again (robots2)
            visit.answers, visit.waits = {}, 0
        return answer

    def _validators(self, visit: Visit) -> Validators:
        """R7: what is held of exactly this URL."""
        if visit.kind == "target":
            return visit.known["validators"] if visit.known.get("wire") == visit.at else Validators()
        if visit.redirects:
            return Validators()
        if visit.kind == "robots":
            state = self._robots.get(visit.site)
            return state.validators if state and state.robots else Validators()
        if visit.kind == "blocklist":
            return self._blocklist_state.validators if self._blocklist is not None else Validators()
        return Validators()

    def _untagged(self, location: str) -> str:
        """The gates never see R13's parameters, also where a server repeats them in a redirect."""
        if self._tag is None:
            return location
        parameters = tag_url("", *self._tag)[1:]
        for tagged, bare in ((f"?{parameters}&", "?"), (f"?{parameters}", ""), (f"&{parameters}", "")):
            if tagged in location:
                return location.replace(tagged, bare, 1)
        return location

    # --- R3: the blocklist ------------------------------------------------

    def _blocklist_gate(self, visit: Visit) -> Steps[Decision | None]:
        """R3, first of all. The canonical documents themselves stay reachable, or no list could ever be mended."""
        if visit.kind in CANONICAL_KINDS:
            return None
        if visit.waits and self._is_shared:         # another process may have adopted a newer one meanwhile
            self._load_blocklist()
        if not self._blocklist_is_current() and not (visit.only_looks and self._blocklist is not None):
            stuck = yield from self._errand("blocklist", visit, self._blocklist_is_current, self._load_blocklist, self._refresh_blocklist)
            if stuck is not None:       # whoever refreshes it has stopped, and holds the lock
                self._blocklist_failed(stuck.reason, self._clock.time(), None)
        entry = self._blocklist.blocks(visit.host) if self._blocklist is not None else None
        if entry is None:
            return None
        dated = f", {entry.added}" if entry.added else ""
        return Decision(False, visit.url, "R3", f"{visit.host}: operator blocklist entry {entry.domain}{dated}" +
                        (f" ({entry.reason})" if entry.reason else ""), blocked_by=entry)

    def _blocklist_is_current(self) -> bool:
        state, now = self._blocklist_state, self._clock.time()
        if is_fresh(state.failed_at, POLICY_RETRY_SECONDS, now) or is_fresh(state.failed_at, state.retry_at - state.failed_at, now):
            return True     # it was asked in vain a moment ago
        return self._blocklist is not None and is_fresh(state.checked_at, self._blocklist.refresh_seconds, now)

    def _load_blocklist(self) -> None:
        """The newest generation that the shelf holds whole, and when it was last asked about."""
        held = [self._shelf.load("blocklist", f"{self._origin} {generation}") for generation in (0, 1)]
        for entry in sorted(filter(None, held), key=lambda entry: -as_number(entry.get("serial"))):
            if self._blocklist is not None and as_number(entry.get("serial")) <= self._blocklist_state.serial:
                break
            try:
                self._blocklist = Blocklist.from_columns(entry["columns"])
            except (KeyError, ValueError) as error:
                self._warn(f"blocklist: a copy in the cache does not hold: {error}")
                continue
            self._blocklist_state = self._blocklist_state._replace(
                serial=int(as_number(entry.get("serial"))), validators=from_entry(Validators(), entry), checked_at=as_number(entry.get("checked_at")))
            break
        asked = self._shelf.load("refresh", self._origin) or {}
        state = self._blocklist_state
        if self._blocklist is not None:     # while nothing was ever held, every process tries for itself
            state = state._replace(failed_at=max(state.failed_at, as_number(asked.get("failed_at"))),
                                   retry_at=max(state.retry_at, as_number(asked.get("retry_at"))))
        if asked.get("serial") == state.serial:     # of another generation it says nothing
            state = state._replace(checked_at=max(state.checked_at, as_number(asked.get("checked_at"))))
        self._blocklist_state = state

    def _refresh_blocklist(self) -> Steps[Decision | None]:
        """R3b, R3c, R10: asks for the document, and adopts it only if it holds. Whatever else happens, the last list stays."""
        url = self._origin + BLOCKLIST_PATH
        visit = Visit("blocklist", url, url, self._clock.monotonic())
        answer = yield from self._carry(visit)
        now = self._clock.time()
        self._blocklist_state = self._blocklist_state._replace(status=getattr(answer, "status", 0))
        if isinstance(answer, Response) and answer.status == 304 and visit.sent_validators:
            self._blocklist_state = self._blocklist_state._replace(checked_at=now, failed_at=-math.inf, retry_at=-math.inf)
            self._shelf.store("refresh", self._origin, {"serial": self._blocklist_state.serial, "checked_at": now})
            return None
        try:
            if not isinstance(answer, Response) or answer.status != 200:
                raise BlocklistRejected(no_document(visit.trouble, answer))
            if answer.truncated:
                raise BlocklistRejected(f"more than {MAX_BLOCKLIST_BYTES} bytes")
            document = parse_json(answer.body, "blocklist")
            schema = None
            if isinstance(document, dict) and not isinstance(document.get("schema"), dict):
                schema = yield from self._standalone_schema()
            adopted = Blocklist.from_document(document, schema)
        except ValueError as error:
            self._blocklist_failed(str(error), now, visit.retry_at)
            return None
        self._adopt(adopted, validators_of(answer.headers) if not visit.redirects else Validators(), now)
        return None

    def _adopt(self, blocklist: Blocklist, validators: Validators, now: float) -> None:
        """Two generations lie on disk, and the older is overwritten: at every instant one is whole."""
        state = BlocklistState(self._blocklist_state.serial + 1, now, validators=validators, status=self._blocklist_state.status)
        self._blocklist, self._blocklist_state = blocklist, state
        for line in blocklist.warnings:
            self._warn(f"blocklist: {line}")
        self._shelf.store("blocklist", f"{self._origin} {state.serial % 2}", {
            "serial": state.serial, "checked_at": now, "columns": blocklist.to_columns(), **validators._asdict()}, durable=True)
        self._shelf.store("refresh", self._origin, {"serial": state.serial, "checked_at": now})

    def _blocklist_failed(self, reason: str, now: float, retry_at: float | None) -> None:
        """R3b: the last list stays in force; the next try is soon. Without a list the gate is open, and says so."""
        self._blocklist_state = self._blocklist_state._replace(failed_at=now, retry_at=retry_at or now + POLICY_RETRY_SECONDS)
        if self._blocklist is None:
            self._warn(f"blocklist: {reason}; none was ever adopted, so nothing is blocked yet (R3b: the first failure opens)")
            return
        self._warn(f"blocklist: {reason}; the list of {len(self._blocklist)} entries that is held stays in force (R3b)")
        state = self._blocklist_state
        self._shelf.store("refresh", self._origin, {
            "serial": state.serial, "checked_at": state.checked_at, "failed_at": now, "retry_at": state.retry_at})

    def _standalone_schema(self) -> Steps[Any]:
        """R10: the schema of a document that carries none: cached seven days, kept stale on failure, None where there is none at all."""
        now = self._clock.time()
        held = self._shelf.load("schema", self._origin) or {}
        body, checked_at = held.get("body"), as_number(held.get("checked_at"))
        if isinstance(body, bytes) and is_fresh(checked_at, SCHEMA_TTL_SECONDS, now):
            return parse_json(body, "schema in the cache")
        url = self._origin + SCHEMA_PATH
        visit = Visit("schema", url, url, self._clock.monotonic())
        answer = yield from self._carry(visit)
        trouble = ""
        if isinstance(answer, Response) and answer.status == 200 and not answer.truncated:
            try:
                schema = parse_json(answer.body, "schema")
                compile_schema(schema)      # one that does not compile must not displace one that does
                self._shelf.store("schema", self._origin, {"body": answer.body, "checked_at": now}, durable=True)
                return schema
            except ValueError as error:
                trouble = str(error)
        if not isinstance(body, bytes):
            return None
        self._warn(f"schema: {trouble or no_document(visit.trouble, answer)}; the one of {iso_utc(checked_at)} is used (R10)")
        return parse_json(body, "schema in the cache")

    # --- The address check, between R3 and R2 -----------------------------

    def _address_gate(self, visit: Visit) -> Steps[Decision | None]:
        """Nothing is sent to an address that is not public."""
        yield from ()       # a gate that never waits
        if self._allow_private:
            return None
        reason = site_refusal(visit.site)
        if not reason and hasattr(self._transport, "resolve"):
            try:
                self._transport.resolve(visit.at, self._timeout)
            except TransportError as error:
                reason = error.reason if error.refused else ""      # a name that does not exist fails later, by itself
            except Exception as error:  # noqa: BLE001 - a transport's bug: what cannot be checked is not asked
                reason = f"the address cannot be checked: unexpected {type(error).__name__}"
        return Decision(False, visit.url, "address", reason) if reason else None

    # --- R2: robots.txt ---------------------------------------------------

    def _robots_gate(self, visit: Visit) -> Steps[Decision | None]:
        """R2: robots.txt before any target of its site."""
        if self._robots_mode == "ignore":
            visit.decision = Decision(True, visit.url, verdict=Verdict.SKIPPED_BY_USER_POLICY, reason="robots_mode='ignore'")
            return None
        site = visit.site
        if not self._robots_are_current(site) and not (visit.only_looks and site in self._robots):
            deferred = yield from self._errand(f"robots {site}", visit, lambda: self._robots_are_current(site), lambda: self._load_robots(site),
                                               lambda: self._refresh_robots(site, robots_url(visit.at)))
            if deferred is not None:
                return deferred._replace(url=visit.url)
        decision = robots_decision(visit.url, path_and_query(visit.at), self._robots[site], self._clock.time(), self._unreachable)
        visit.transport_retries = 0 if self._robots[site].no_network else KINDS[visit.kind].transport_retries
        if self._robots_mode == "report_only":
            decision = decision._replace(allowed=True, gate=None, retry_at=None)
        if not decision:
            return decision
        if decision.verdict is Verdict.UNKNOWN_PARSE_ERROR and PARSE_ERROR_WARNING not in visit.warnings:
            visit.warnings.append(PARSE_ERROR_WARNING)
        visit.decision = decision
        return None

    def _robots_are_current(self, site: str) -> bool:
        state = self._robots.get(site)
        return state is not None and robots_is_current(state, self._clock.time())

    def _load_robots(self, site: str) -> None:
        state = robots_from_entry(self._shelf.load("robots", site))
        if state is not None:
            self._keep_robots(site, state)

    def _keep_robots(self, site: str, state: RobotsState) -> None:
        """In memory the most recently learned, up to a bound; the shelf has the rest."""
        old = self._robots.pop(site, None)
        self._robots_bytes += len(state.body) - (len(old.body) if old else 0)
        self._robots[site] = state
        while self._robots_bytes > MAX_ROBOTS_IN_MEMORY_BYTES and len(self._robots) > 1:
            self._robots_bytes -= len(self._robots.popitem(last=False)[1].body)

    def _refresh_robots(self, site: str, url: str) -> Steps[Decision | None]:
        """R2: asks for robots.txt. What it says, or that it could not be had, is kept for this run and the next."""
        visit = Visit("robots", url, url, self._clock.monotonic())
        answer = yield from self._carry(visit)
        held, now = self._robots.get(site, RobotsState()), self._clock.time()
        if isinstance(answer, Decision) and answer.retry_at is not None:        # the host is held back
            return answer
        if isinstance(answer, TransportError) and answer.refused and not visit.redirects:
            return Decision(False, url, "address", answer.reason)
        if isinstance(answer, Response) and not visit.has_strayed:
            state = robots_after_answer(held, answer, now)
            if visit.redirects:         # validators belong to the URL that gave them
                state = state._replace(validators=Validators())
            if visit.retry_at is not None and state.retry_at:      # Retry-After or the last retry binds the host, and so its robots.txt
                state = state._replace(retry_at=max(state.retry_at, visit.retry_at))
        else:
            state = robots_after_failure(held, f"robots.txt: {no_document(visit.trouble, answer)}", getattr(answer, "status", 0), now)
        self._keep_robots(site, state)
        self._shelf.store("robots", site, robots_to_entry(state))
        return None

    # --- robots2.txt, opt-in ----------------------------------------------

    def may(self, url: str, directive: str) -> Decision:
        """What the site's robots2.txt answers to a use of `url`: "summarise", "quote", "derivative", "train", "store" …

        True only where it says yes, or was asked and allows it. `.reason` begins with the stance in the text's words: "yes", "no", "ask",
        "short-only", "session-only" …, or "unstated" where the site says nothing. ValueError: not a directive of robots2, or robots2 is off.
        """
        if not self._category:
            raise ValueError("robots2 is off, want Bot(robots2=True)")
        robots2_stance({}, directive)
        try:
            visit = Visit("target", str(url), wire_url(str(url)), self._clock.monotonic())
        except ValueError as error:
            return Decision(False, mask_credentials(str(url)), reason=str(error))
        return self._drive(self._use(visit, directive))

    def _use(self, visit: Visit, directive: str) -> Steps[Decision]:
        for gate in TARGET_GATES[:3]:       # what robots2.txt can only narrow
            refusal = yield from gate(self, visit)
            if refusal is not None:
                return refusal
        robots2, deferred = yield from self._robots2_of(visit)
        if deferred is not None:
            return deferred
        stance = robots2_stance(robots2.policy, directive) if robots2 is not None else "unstated"
        if stance != "ask":
            permitted, reason, retry_at = stance in ("yes", "none", "preferred"), f"{stance}: robots2.txt on {directive}", None
        else:
            answer = yield from self._ask(visit, directive)
            permitted, reason = ask_permits(answer, path_and_query(visit.at)), f"ask: {answer.reason}"
            retry_at = (visit.retry_at or self._clock.time() + POLICY_RETRY_SECONDS) if answer.decision == "later" else None
        return visit.decision._replace(allowed=permitted, gate=None if permitted else "robots2", reason=reason, retry_at=retry_at)

    def _robots2_gate(self, visit: Visit) -> Steps[Decision | None]:
        """robots2.txt can only narrow what the other gates allow; without the option nothing of it is asked for."""
        if not self._category:
            return None
        robots2, deferred = yield from self._robots2_of(visit)
        if deferred is not None or robots2 is None:
            return deferred
        ruling = robots2_gate(robots2, path_and_query(visit.at))
        if ruling.decision == "denied":
            return visit.decision._replace(allowed=False, gate="robots2", reason=ruling.reason, rule=ruling.rule or visit.decision.rule)
        for directive in ruling.ask:
            if directive not in visit.answers:
                visit.answers[directive] = yield from self._ask(visit, directive)
            answer = visit.answers[directive]
            if answer.decision == "later":
                return visit.decision._replace(allowed=False, gate="robots2", reason=f"asked for {directive}: {answer.reason}",
                                               retry_at=visit.retry_at or self._clock.time() + POLICY_RETRY_SECONDS)
            if not ask_permits(answer, path_and_query(visit.at)):
                return visit.decision._replace(allowed=False, gate="robots2", reason=f"asked for {directive}: {answer.reason}" + (
                    "" if answer.decision == "deny" else ", not for this path"))
        return None

    def _robots2_of(self, visit: Visit) -> Steps[tuple[Robots2 | None, Decision | None]]:
        site = visit.site

        def is_current() -> bool:
            return site in self._robots2 and robots_is_current(self._robots2[site][0], self._clock.time())

        def load() -> None:
            entry = self._shelf.load("robotstwo", f"{site} {self._category}")
            state = robots_from_entry(entry)
            if entry is not None and state is not None:
                self._robots2[site] = state, self._parse_chain(entry.get("files"))

        if not is_current() and not (visit.only_looks and site in self._robots2):
            deferred = yield from self._errand(f"robots2 {site}", visit, is_current, load, lambda: self._refresh_robots2(site, visit.at))
            if deferred is not None:
                return None, deferred._replace(url=visit.url)
        state, robots2 = self._robots2[site]
        return None if robots_undefined_for_good(state, self._clock.time()) else robots2, None

    def _parse_chain(self, files: Any) -> Robots2 | None:
        """The files of a chain as the shelf keeps them, [[url, body], …], merged."""
        if not (isinstance(files, list) and files and all(
                isinstance(file, list) and len(file) == 2 and isinstance(file[0], str) and isinstance(file[1], bytes) for file in files)):
            return None
        return robots2_chain([(url, Robots2.parse(body, self._category)) for url, body in files])[0]

    def _refresh_robots2(self, site: str, wire: str) -> Steps[Decision | None]:
        """Asks for robots2.txt and the files that it chains to: kept like robots.txt, and like it while out of reach."""
        url = robots_url(wire)[:-len("robots.txt")] + "robots2.txt"
        held, known = self._robots2.get(site, (RobotsState(), None))
        visit = Visit("robots2", url, url, self._clock.monotonic())
        answer = yield from self._carry(visit)
        now = self._clock.time()
        if isinstance(answer, Decision) and answer.retry_at is not None:
            return answer
        files: list[list[Any]] = []
        if isinstance(answer, Response) and answer.status != 304 and robots_meaning(answer.status) in ("rules", "none", "redirect") and \
                not visit.has_strayed:
            state = robots_after_answer(RobotsState(), answer, now)
            if state.robots is not None:
                held_files = (self._shelf.load("robotstwo", f"{site} {self._category}") or {}).get("files")
                files, is_whole = yield from self._chain_of(url, state.body, held_files)
                known = self._parse_chain(files)
                if not is_whole:
                    state = state._replace(retry_at=now + POLICY_RETRY_SECONDS)
            else:
                known = None
        else:       # a gate that refuses the file, or a hop of it, is no answer either
            state = robots_after_failure(held, f"robots2.txt: {no_document(visit.trouble, answer)}", getattr(answer, "status", 0), now)
            files = (self._shelf.load("robotstwo", f"{site} {self._category}") or {}).get("files", [])
        self._robots2[site] = state._replace(body=b""), known
        self._shelf.store("robotstwo", f"{site} {self._category}", {**robots_to_entry(state), "body": None, "files": files})
        return None

    def _chain_of(self, url: str, body: bytes, held: Any) -> Steps[tuple[list[list[Any]], bool]]:
        """At most three further files, each behind every gate, and whether none was out of reach: of such a one the `held` copy stays."""
        files: list[list[Any]] = [[url, body]]
        is_whole = True
        kept = {file[0]: file[1] for file in held} if self._parse_chain(held) is not None else {}
        while True:
            chain = robots2_chain([(at, Robots2.parse(text, self._category)) for at, text in files])[1]
            if chain is None:
                return files, is_whole
            try:
                wire = wire_url(chain)
                if canonical_url(wire) in (canonical_url(at) for at, _ in files):       # a loop in another spelling
                    return files, is_whole
            except ValueError:
                return files, is_whole
            visit = Visit("robots2", chain, wire, self._clock.monotonic())
            answer = yield from self._carry(visit)
            if isinstance(answer, Response) and answer.status == 200:
                files.append([chain, answer.body[:MAX_CHAINED_BYTES]])
                continue
            is_gone = isinstance(answer, Response) and answer.status != 304 and robots_meaning(answer.status) in ("rules", "none")
            is_whole = is_whole and is_gone
            if is_gone or chain not in kept:
                return files, is_whole
            files.append([chain, kept[chain]])

    def _ask(self, visit: Visit, directive: str) -> Steps[AskAnswer]:
        """The ask protocol: an answer on file that still holds, else HEAD, itself behind blocklist, robots.txt and pace."""
        site, now = visit.site, self._clock.time()
        key = f"{site} {directive} {self._category}"
        entry = self._shelf.load("ask", key) or {}
        scopes = entry.get("scopes")
        is_held = is_fresh(as_number(entry.get("at")), ROBOTS2_ASK_TTL_SECONDS, now)
        if is_held and entry.get("decision") in ("allow", "deny") and isinstance(scopes, list):
            said_so = f"answered {entry['decision']} {spell_seconds(now - entry['at'])} ago"
            return AskAnswer(entry["decision"], tuple(map(as_text, scopes)), said_so, True)
        url = robots2_ask_url(visit.at, directive)
        asking = Visit("ask", url, wire_url(url), self._clock.monotonic())
        answer = yield from self._carry(asking)
        visit.waited += asking.waited
        visit.retry_at = answer.retry_at if isinstance(answer, Decision) else asking.retry_at      # read only where the answer is "later"
        if isinstance(answer, Decision):
            return AskAnswer("deny" if answer.retry_at is None else "later", reason=f"may not be asked: {answer.reason}")
        if isinstance(answer, TransportError):
            return AskAnswer("deny", reason=f"no answer: {answer.reason}")
        said = parse_ask_answer(answer.status, answer.headers)
        if said.cacheable:
            self._shelf.store("ask", key, {"decision": said.decision, "scopes": list(said.scopes), "at": self._clock.time()})
        return said

    def _announcement(self, visit: Visit) -> str:
        """X-Agent-Identity, where the site's robots2.txt wants it, and in every question."""
        if not self._category:
            return ""
        known = self._robots2.get(visit.site, (None, None))[1]
        if visit.kind == "ask" or known is not None and known.policy.get("announce") == "yes":
            return robots2_identity(self._category)
        return ""

    # --- Errands: documents that several visits, or processes, wait for ---

    def _errand(self, name: str, visit: Visit, is_current: Callable[[], bool], load: Callable[[], None],
                make: Callable[[], Steps[Decision | None]]) -> Steps[Decision | None]:
        """R12: blocks until a stale document is current again. One refresh serves all who wait; between two requests nothing is held."""
        patient_until = self._clock.monotonic() + self._patience
        while not is_current():
            steps, later = self._errands.get(name) or (make(), None)
            now = self._clock.monotonic()
            if later is None or later.at <= now:
                lock = self._shelf.try_lock(f"refresh {name}")
                if lock is None:
                    later = Later(now + LOCK_POLL_SECONDS, "R3" if name == "blocklist" else "R2", f"another process refreshes {name}")
                    if now > patient_until:
                        return self._not_yet(visit, later)
                else:
                    patient_until = now + self._patience
                    with lock:
                        self._errands.pop(name, None)
                        load()
                        if is_current():
                            return None
                        later, outcome = next_step(steps)
                        if later is None:
                            return outcome
                        self._errands[name] = steps, later
            yield from self._wait(visit, later)
        return None

    def _wait(self, visit: Visit, later: Later) -> Steps[None]:
        before = self._clock.monotonic()
        if later.at - before > LOCK_POLL_SECONDS:
            self._say(f"{printable(visit.at)}: waits {spell_seconds(later.at - before)}: {later.reason}")
        yield later
        visit.waited += self._clock.monotonic() - before

    # --- R4, R5: the pace -------------------------------------------------

    def _throttle_gate(self, visit: Visit) -> Steps[Decision | None]:
        """R4: claims the host's next slot, comes back when it is due, and asks again whether it still holds.

        The host's lock is kept from here until the request has left (`_departed`), so that no other process starts meanwhile.
        """
        if self._interactive:       # spec 1.1
            return None
        interval = request_interval(self._crawl_delay(visit)) + self._margin
        is_first_of_policy = visit.kind in SLOTLESS_KINDS and not visit.attempts and visit.at not in self._pacer.asked
        patient_until, has_waited = self._clock.monotonic() + self._patience, False
        while True:
            now = self._clock.monotonic()
            visit.lock = self._lock_host(visit.host)
            if visit.lock is None:
                later = Later(now + LOCK_POLL_SECONDS, "R4", f"another process is at {visit.host}")
                if now > patient_until:
                    return self._not_yet(visit, later)
                yield from self._wait(visit, later)
                has_waited = True
                continue
            pace = self._pace(visit.host, now)
            if is_first_of_policy and pace.last_at == -math.inf:       # a run asks for the blocklist first of all: what came before was another's
                start = max(pace.not_before, pace.policy_at + interval) if visit.kind == "blocklist" else pace.not_before
            elif visit.slot > -math.inf:        # our place in the queue; a request that left late pushes all behind it
                start = max(visit.slot, pace.not_before, pace.departed_at + interval)
            else:
                start = next_start(pace, interval, follows_policy=visit.kind != "target" or visit.attempts > 0)
            if start <= now and has_waited and not visit.waits:     # for a lock: every gate is asked again
                visit.release()
                visit.waits += 1
                return ASK_AGAIN
            if start <= now:
                if is_first_of_policy:
                    self._pacer.asked.add(visit.at)
                self._keep_pace(visit.host, pace._replace(policy_at=now) if is_first_of_policy and pace.last_at == -math.inf else
                                pace._replace(last_at=max(pace.last_at, now), interval=interval, departed_at=now), now)
                visit.slot = now
                return None
            gate, why = "R5", pace.why
            if start != pace.not_before:
                gate, why = "R4", f"{spell_seconds(interval - self._margin)} between requests to {visit.host}"
            if start - now <= self._max_wait:
                visit.slot = start
                self._keep_pace(visit.host, pace._replace(last_at=max(start, pace.last_at), interval=interval), now)
            visit.release()
            if start - now > self._max_wait:
                return self._not_yet(visit, Later(start, gate, why))
            yield from self._wait(visit, Later(start, gate, why))
            visit.waits += 1
            return ASK_AGAIN

    def _not_yet(self, visit: Visit, later: Later) -> Decision:
        seconds = max(0.0, later.at - self._clock.monotonic())
        return visit.decision._replace(allowed=False, gate=later.gate, reason=f"not before {spell_seconds(seconds)} from now: {later.reason}",
                                       retry_at=self._clock.time() + seconds)

    def _departed(self, visit: Visit) -> None:
        """The request has left: the server counts from here, and so do we."""
        now = self._clock.monotonic()
        if now - visit.slot > SLOT_TOLERANCE_SECONDS:
            pace = self._pace(visit.host, now)
            is_policy = pace.last_at == -math.inf
            self._keep_pace(visit.host, pace._replace(policy_at=now) if is_policy else
                            pace._replace(last_at=max(pace.last_at, now), departed_at=now), now)
        visit.release()

    def _hold(self, host: str, seconds: float, why: str) -> None:
        """R5: nothing goes to this host before then, from no run and no process. An entry of its own: no claim of a slot overwrites it."""
        now = self._clock.monotonic()
        pace = self._pace(host, now)
        if now + seconds <= pace.not_before:
            return
        self._pacer.hosts[host] = pace._replace(not_before=now + seconds, why=why)
        if self._is_shared:
            entry = self._pacer.on_disk[f"hold {host}"] = {"not_before": self._clock.time() + seconds, "why": why}
            if not self._shelf.store("hold", host, entry):
                self._shelf.forget("hold", host)

    def _crawl_delay(self, visit: Visit) -> float | None:
        """R2d, and the `rate` of robots2: the larger."""
        site = visit.site
        state, known = self._robots.get(site), self._robots2.get(site, (None, None))[1]
        delay = state.robots.crawl_delay if state and state.robots else None
        rate = known.rate_interval if known is not None else None
        return delay if rate is None else max(delay or 0.0, rate)

    def _lock_host(self, host: str) -> Any:
        """The host's lock among processes, None where another has it; within this one the door is lock enough."""
        return self._shelf.try_lock(f"host {host}") if self._is_shared else NO_LOCK

    def _pace(self, host: str, now: float) -> HostPace:
        """What this process knows of a host, and what another has written since."""
        pace = self._pacer.hosts.get(host, UNSEEN_HOST)
        if not self._is_shared:
            return pace
        entry, hold = self._shelf.load("host", host) or {}, self._shelf.load("hold", host) or {}
        ours = self._pacer.on_disk                  # our own words: the monotonic clock knows them better
        news = {**(entry if entry != ours.get(f"host {host}") else {}), **(hold if hold != ours.get(f"hold {host}") else {})}
        return merge_paces(pace, pace_from_entry(news, self._clock.time() - now), now) if news else pace

    def _keep_pace(self, host: str, pace: HostPace, now: float) -> None:
        self._pacer.hosts[host] = pace
        if self._is_shared:
            entry = pace_to_entry(pace, self._clock.time() - now)
            self._pacer.on_disk[f"host {host}"] = entry
            if not self._shelf.store("host", host, entry):
                self._shelf.forget("host", host)        # the pacer knows it; what others write must stay visible

    # --- What came of it --------------------------------------------------

    def _conclude(self, visit: Visit, answer: Response | TransportError | Decision) -> Result:
        """The outcome of a target, and why."""
        if isinstance(answer, Decision):
            outcome = "denied" if answer.retry_at is None else "deferred"
            return self._result(outcome, visit.url, visit, gate=answer.gate, reason=answer.reason, verdict=answer.verdict, rule=answer.rule,
                                retry_at=answer.retry_at, group=answer.group, robots_source=answer.robots_source,
                                content_signals=answer.content_signals)
        if isinstance(answer, TransportError):
            if answer.refused:
                return self._result("denied", visit.url, visit, gate="address", reason=answer.reason)
            if visit.retry_at is not None and visit.retries < DEFAULT_MAX_RETRIES:      # the back-off goes beyond max_wait
                return self._result("deferred", visit.url, visit, gate="R5", reason=visit.trouble, retry_at=visit.retry_at)
            return self._result("failed", visit.url, visit, reason=visit.trouble or answer.reason, retry_at=visit.retry_at)
        seen = {"status": answer.status, "content_type": header_value(answer.headers, "content-type")}
        if answer.status == 304 and visit.sent_validators:
            fresh = validators_of(answer.headers)
            known = visit.known["validators"]
            directives, cautions = robots_directives(answer.headers, None, self._clock.time())
            return self._result("unchanged", visit.url, visit, reason="not modified", etag=fresh.etag or known.etag,
                                last_modified=fresh.last_modified or known.last_modified, robots_directives=directives,
                                warnings=visit.warnings + cautions, **seen)
        if 200 <= answer.status < 300:
            return self._read(visit, answer, seen)
        if visit.retry_at is not None and visit.retries < DEFAULT_MAX_RETRIES:      # Retry-After beyond max_wait
            return self._result("deferred", visit.url, visit, gate="R5", reason=visit.trouble, retry_at=visit.retry_at, **seen)
        return self._result("failed", visit.url, visit, gate="R5" if visit.retry_at is not None else None,
                            reason=visit.trouble or f"the server answered {answer.status}", retry_at=visit.retry_at, **seen)

    def _read(self, visit: Visit, answer: Response, seen: dict[str, Any]) -> Result:
        """A success, as metadata (R6): what it is called, what it links to in its structured forms (R9), what it asks of us."""
        if answer.truncated:
            return self._result("failed", visit.url, visit, reason=f"more than {self._max_bytes} bytes", **seen)
        media_type = content_type_of(answer.headers)[0]
        body, warnings = answer.body, list(visit.warnings)
        if is_unread_type(media_type) and not visit.wants(answer.status, answer.headers):
            body = b""
            warnings.append(f"{media_type} is not read (R6)")
        reading = read_metadata(body, media_kind(media_type), seen["content_type"], visit.at)
        directives, cautions = robots_directives(answer.headers, reading.page, self._clock.time())
        validators = validators_of(answer.headers)
        return self._result(
            "fetched", visit.url, visit, bytes=len(body), sha256=sha256_hex(body), etag=validators.etag, last_modified=validators.last_modified,
            title=reading.title, links=reading.links, metadata=reading.metadata, robots_directives=directives, body=body,
            warnings=warnings + reading.warnings + cautions, **seen)

    def _result(self, outcome: str, url: str, visit: Visit | None = None, **fields: Any) -> Result:
        """A Result with all that is the same for every outcome."""
        if visit is None:
            return Result(outcome, mask_credentials(str(url)), at=self._clock.time(), **fields)
        decision = visit.decision
        common: dict[str, Any] = {
            "final_url": visit.at, "verdict": decision.verdict, "rule": decision.rule, "group": decision.group, "reason": decision.reason,
            "robots_source": decision.robots_source, "crawl_delay": decision.crawl_delay, "content_signals": decision.content_signals,
            "redirects": visit.redirects, "attempts": visit.attempts, "waited": visit.waited,
            "elapsed": self._clock.monotonic() - visit.started_at, "at": self._clock.time(), "warnings": list(visit.warnings),
            "links": [], "metadata": {}, "robots_directives": []}
        common.update(fields)
        return Result(outcome, url, **common)

    def _remember(self, key: str, visit: Visit, result: Result) -> None:
        """R7, R8: validators of exactly the URL that answered, and when the source was last fetched."""
        self._shelf.store("source", key, {"at": result.at, "wire": visit.at, "etag": result.etag, "last_modified": result.last_modified})

    def explain(self, decision: Decision) -> list[tuple[str, str]]:
        """Each gate in order, with what decided it: (gate, what it said)."""
        checked = spell_seconds(self._clock.time() - self._blocklist_state.checked_at)
        listed = f"among {self.blocklist_size}, checked {checked} ago" if self._blocklist is not None else "no list was ever adopted"
        said = [("blocklist", decision.reason if decision.gate == "R3" else f"not listed ({listed})")]
        if decision.gate == "R3":
            return said
        said.append(("address", decision.reason if decision.gate == "address" else "permitted" if self._allow_private else "public, as far as known"))
        if decision.gate == "address":
            return said
        group = f", group {decision.group}" if decision.group else ""
        verdict = decision.verdict.value if decision.verdict else "unknown"
        said.append(("robots.txt", f"{verdict}{group}" + ("" if decision.gate in ("robots2", "R4", "R5") else f": {decision.reason}")))
        if decision.robots_source:
            said.append(("source", decision.robots_source))
        said += [("robots2", line) for line in self._robots2_lines(decision)]
        if decision:
            wire = wire_url(decision.url)
            robots2 = self._robots2.get(site_key(wire), (None, None))[1]
            interval = max(request_interval(decision.crawl_delay), (robots2.rate_interval if robots2 is not None else None) or 0.0)
            pace = self._pace(host_key(wire), self._clock.monotonic())
            start = next_start(pace, interval + self._margin, False)
            wait = start - self._clock.monotonic()
            held = f" ({pace.why})" if pace.why and start == pace.not_before else ""
            said.append(("pace", f"{interval:g} s between requests; " + (f"next slot in {spell_seconds(wait)}{held}" if wait > 0 else "a slot is free now")))
        if decision.content_signals:
            signals = ", ".join(f"{name}={value}" for name, value in decision.content_signals.items())
            said.append(("signals", f"{signals} (binds no use that this bot makes)"))
        if decision:
            known = source_from_entry(self._shelf.load("source", canonical_url(wire_url(decision.url))))
            age = self._clock.time() - known["at"]
            conditionally = "asked whether it changed (R7)" if known["validators"] != Validators() else "requested"
            is_recent = 0.0 <= age < 3600.0
            said.append(("next", f"fetched {spell_seconds(age)} ago: skipped for an hour (R8), then {conditionally}" if is_recent else conditionally))
        return said

    def _robots2_lines(self, decision: Decision) -> list[str]:
        """What was read of the site's robots2.txt, and what it decided."""
        lines = [decision.reason] if decision.gate == "robots2" else []
        robots2 = self._robots2.get(site_key(wire_url(decision.url)), (None, None))[1] if decision.verdict else None
        if robots2 is not None:
            for what, fields in (("policy", robots2.policy), ("its own word on its content", robots2.signals)):
                if fields:
                    lines.append(f"{what}: " + ", ".join(f"{name}: {value}" for name, value in fields.items()))
            if robots2.report_to:
                lines.append("report to " + ", ".join(robots2.report_to))
            lines += [f"line {line.line} is not understood and grants nothing: {line.name}: {line.value}" for line in robots2.unknown[:10]]
        return lines

    # --- Voices -----------------------------------------------------------

    def _warn(self, line: str) -> None:
        """What concerns the run, once."""
        if line not in self._said and len(self._said) < MAX_WARNINGS:
            self._said.add(line)
            self._tell(line)

    def _say(self, line: str) -> None:
        if self._trace is not None:
            self._trace(line)


# spec 7, normative: R3, R2, R4 in this order. The address check is ours; robots2 can only narrow.
TARGET_GATES = (Bot._blocklist_gate, Bot._address_gate, Bot._robots_gate, Bot._robots2_gate, Bot._throttle_gate)
ROBOTS2_GATES = (Bot._blocklist_gate, Bot._address_gate, Bot._robots_gate, Bot._throttle_gate)
POLICY_GATES = (Bot._blocklist_gate, Bot._address_gate, Bot._throttle_gate)
GATES_OF = {"target": TARGET_GATES, "fixture": TARGET_GATES, "robots": POLICY_GATES, "blocklist": POLICY_GATES, "schema": POLICY_GATES,
            "robots2": ROBOTS2_GATES, "ask": ROBOTS2_GATES}


# === 16. PROOF   spec 12 to 16, 22.1 =====================================
# Owns the publisher on loopback, the checks that it can show, the live fixtures, and the attestation.

class Hit(NamedTuple):
    """One request as the sandbox's server received it."""

    time: float                         # Unix seconds
    monotonic: float
    method: str
    path: str
    headers: dict[str, str]             # lower-case names


class Check(NamedTuple):
    """One line of the self-test. `outcome` is "pass", "fail" or "skip"."""

    clause: str
    check: str
    outcome: str
    observed: str


BLOCKLIST_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": ORIGIN + SCHEMA_PATH,
    "type": "object",
    "required": ["contract", "updated", "blocked"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string"}, "schema": {"type": "object"},
        "operator": {"type": "string"}, "contact": {"type": "string"}, "policy": {"type": "string", "pattern": "^https?://"},
        "contract": {"type": "string", "pattern": "^walsh-research-blocklist/v1(\\.[0-9]+)?$"},
        "updated": {"type": "string", "format": "date-time"},
        "refresh": {"type": "string", "pattern": "^P[0-9A-Z.]+$"},
        "blocked": {"type": "array", "items": {
            "type": "object", "required": ["domain"],
            "properties": {"domain": {"type": "string", "minLength": 1}, "added": {"type": "string"}, "reason": {"type": "string"}}}},
    },
}
SANDBOX_ROBOTS = """\
User-agent: *
Disallow: /research/bots/dogfood-walsh-only
Disallow: /star-only

User-agent: Walsh-Research
Disallow: /denied
Disallow: /research/bots/dogfood-disallow
Disallow: /wild/*.pdf$
Allow: /wild/open
Allow: /research/bots/dogfood-allow
Allow: /research/bots/dogfood-walsh-only
Crawl-delay: {crawl_delay:g}
Content-Signal: search=yes, ai-train=no

Sitemap: {origin}/sitemap.xml
"""

SANDBOX_ROBOTS2 = """\
# robots2.txt of the sandbox
# meta: spec-version: 2.0
# meta: chain-id: sandbox
User-agent: *
Disallow: /robots2-denied

crawl: ask
read: yes
quote: short-only
derivative: ask
train: no
rate: 30
announce: yes
honest: yes

[agent: monitoring]
crawl: no

chain: {origin}/robots2-base.txt
"""


class Sandbox:
    """A publisher on loopback: the canonical resources, the fixtures, the three canaries and an endpoint for every gate.

    `.origin` is its address, `.hits` one record per request received. `.answers[path] = (status, headers, body)` changes what it says.
    `crawl_delay` is what its robots.txt asks of us, in seconds.
    """

    def __init__(self, crawl_delay: float = 2.0) -> None:
        self.crawl_delay = crawl_delay
        self.hits: list[Hit] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.flaky_left = 2
        self.origin = ""

    def __enter__(self) -> Self:
        import threading
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        sandbox = self

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version = "Sandbox", ""
            timeout = 10

            def do_GET(self) -> None:
                sandbox._answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """The hits are the log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self._publish()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def bot(self, **options: Any) -> Bot:
        """A bot whose world is this publisher: it may speak to loopback, and knows no proxy."""
        return Bot(**{"cache_dir": None, "origin": self.origin, "allow_private": True, "warn": lambda line: None,
                      "transport": Door(allow_private=True, proxies={}), **options})

    def paths(self, method: str = "GET") -> list[str]:
        return [hit.path for hit in self.hits if hit.method == method]

    def blocklist(self, **changes: Any) -> bytes:
        """The blocklist document as it is served, with changes; a field set to None is left out."""
        import json
        document = {"$schema": self.origin + SCHEMA_PATH, "contract": BLOCKLIST_CONTRACT, "updated": "2026-05-23T00:00:00Z",
                    "operator": "Sandbox", "contact": "sandbox@wal.sh", "policy": self.origin + "/bot/", "refresh": "PT6H", "schema": BLOCKLIST_SCHEMA,
                    "blocked": [{"domain": "blocked.test", "added": "2026-05-23", "reason": "sandbox"}], **changes}
        return json.dumps({name: value for name, value in document.items() if value is not None}).encode()

    def _publish(self) -> None:
        import gzip
        import json
        fixtures = {"contract": "walsh-research-test-fixtures/v1", "updated": "2026-05-23T00:00:00Z", "fixtures": {
            "robots_allowed_sentinel": self.origin + CANARY_PATH + "allow", "robots_disallowed": self.origin + CANARY_PATH + "disallow",
            "walsh_only_allowed": self.origin + CANARY_PATH + "walsh-only", "external_positive": self.origin + "/allowed",
            "operator_blocked_host": "blocked.test", "flaky_429_endpoint": self.origin + "/flaky"}, "notes": {}}
        page = b"<!doctype html><html lang=en><head><title>A page</title></head><body><a href='/never'>never</a><img src='/never.png'></body></html>"
        sitemap = f"<urlset><url><loc>{self.origin}/allowed</loc></url><url><loc>{self.origin}/denied</loc></url></urlset>".encode()
        html, markdown = {"Content-Type": "text/html; charset=utf-8"}, {"Content-Type": "text/markdown; charset=utf-8"}
        as_json = {"Content-Type": "application/json", "ETag": '"list-1"'}
        self.answers.update({
            "/robots.txt": (200, {"Content-Type": "text/plain"}, SANDBOX_ROBOTS.format(origin=self.origin, crawl_delay=self.crawl_delay).encode()),
            BLOCKLIST_PATH: (200, as_json, self.blocklist()),
            SCHEMA_PATH: (200, {"Content-Type": "application/schema+json"}, json.dumps(BLOCKLIST_SCHEMA).encode()),
            FIXTURES_PATH: (200, {"Content-Type": "application/json"}, json.dumps(fixtures).encode()),
            "/bot/": (200, html, page), "/research/bots/compliance-spec": (200, html, page),
            "/allowed": (200, {**html, "ETag": '"allowed-1"', "Last-Modified": "Sat, 23 May 2026 00:00:00 GMT"}, page),
            "/denied": (200, html, page), "/star-only": (200, html, page), "/wild/open.pdf": (200, html, page), "/wild/a.pdf": (200, html, page),
            "/page.md": (200, markdown, b"# Notes\n\n[One](https://example.org/1) and [two](https://example.org/2), ![no](https://example.org/3)\n"),
            "/llms.txt": (200, {"Content-Type": "text/plain"}, (b"# Sandbox\n\n> A publisher.\n\n## Docs\n\n- [Notes](/page.md): all of them\n"
                          b"- [Hidden](/denied): robots.txt does not apply here\n")),
            "/page": (200, html, (b"<title>Page</title><link rel=alternate type=application/rss+xml href=/feed.xml><link rel=alternate "
                      b"type=application/atom+xml href=/atom.xml><body><a href=/never>never</a>")),
            "/atom.xml": (200, {"Content-Type": "application/atom+xml"}, (b"<feed xmlns='http://www.w3.org/2005/Atom'><title>News</title>"
                          b"<entry><id>urn:1</id><title>First</title><link href='/allowed'/></entry></feed>")),
            "/feed.json": (200, {"Content-Type": "application/feed+json"}, (b'{"version": "https://jsonfeed.org/version/1.1", "title": "News", '
                           b'"items": [{"id": "1", "url": "/allowed", "title": "First"}]}')),
            "/sitemap.xml": (200, {"Content-Type": "application/xml"}, sitemap),
            "/sitemap.xml.gz": (200, {"Content-Type": "application/gzip"}, gzip.compress(sitemap)),
            "/robots2.txt": (200, {"Content-Type": "text/plain"}, SANDBOX_ROBOTS2.format(origin=self.origin).encode()),
            "/robots2-base.txt": (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /robots2-base-denied\n"),
            ROBOTS2_ASK_PATH: (200, {"X-Robots2-Decision": "allow", "X-Robots2-Scope": "/allowed"}, b""),
            "/robots2-denied": (200, html, page), "/robots2-base-denied": (200, html, page),
            "/feed.xml": (200, {"Content-Type": "application/rss+xml"}, (b"<rss version='2.0'><channel><title>News</title><item><title>First"
                          b"</title><link>/allowed</link><guid isPermaLink='false'>1</guid></item></channel></rss>")),
            "/picture.png": (200, {"Content-Type": "image/png"}, b"\x89PNG" + bytes(64)),
            "/moved": (302, {"Location": "/denied"}, b""),
            "/redirected": (302, {"Location": "/allowed"}, b""),
            "/busy": (503, {}, b""),
        })
        for canary in ("allow", "disallow", "walsh-only"):
            for ending, headers in (("", html), (".html", html), (".md", markdown)):
                self.answers[CANARY_PATH + canary + ending] = (200, headers, page)

    def _answer(self, handler: Any) -> None:
        path = handler.path.partition("?")[0]
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.hits.append(Hit(time.time(), time.monotonic(), handler.command, handler.path, headers))
        status, out, body = self.answers.get(path, (404, {}, b""))
        if path == "/flaky":
            status, out, body = (429, {"Retry-After": "1"}, b"") if self.flaky_left > 0 else (200, {"Content-Type": "text/plain"}, b"at last")
            self.flaky_left -= 1
        if path == "/slow":
            time.sleep(0.1)
            status, out, body = 200, {"Content-Type": "text/plain"}, b"slow"
        if path == "/__state__":
            import json
            status, out = 200, {"Content-Type": "application/json"}
            body = json.dumps({"paths": self.paths(), "user_agents": sorted({hit.headers.get("user-agent", "") for hit in self.hits})}).encode()
        if status == 200 and "ETag" in out and headers.get("if-none-match") == out["ETag"]:
            status, body = 304, b""
        try:
            handler.send_response(status)
            for name, value in out.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(body)
        except OSError:
            """The bot has hung up, as it may."""


class VirtualClock:
    """A clock that sleep moves: what takes hours is shown at once. The sandbox proves the pace itself on the real one."""

    def __init__(self, now: float = 1779494400.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


# --- The vectors of spec 12 ---------------------------------------------------

VECTOR_SUITES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "robots_group_selection": lambda case: RobotsTxt.parse(case["robots"]).group,
    "robots_path_matching": lambda case: "ALLOW" if rules_allow(case["rules"], case["path"]) else "DENY",
    "blocklist_domain": lambda case: Blocklist.from_document(
        {"contract": BLOCKLIST_CONTRACT, "schema": {}, "blocked": [{"domain": case["listed"]}]}).blocks(case["host"]) is not None,
    "canonical_url": lambda case: canonical_url(case["input"]),
    "retry_after": lambda case: parse_retry_after(case["value"], case["now"]),
    "duration_ms": lambda case: parse_duration(case["duration"]) * 1000,
}


def rules_allow(rules: Sequence[str], path: str) -> bool:
    return RobotsTxt.parse("User-agent: *\n" + "\n".join(rules)).allows(path)


def vector_checks(path: str) -> Iterator[Check]:
    """The normative vectors from `vectors.json`, or a word that it is not there."""
    try:
        with open(path, "rb") as file:
            body = file.read()
    except OSError:
        yield Check("12", "normative vectors", "skip", f"no vectors.json beside {os.path.basename(__file__)}")
        return
    for name, run in VECTOR_SUITES.items():
        try:
            suite = parse_json(body, "vectors.json")["suites"][name]
            section, cases = str(suite["section"]), suite["cases"]
            wrong = [case for case in cases if run(case) != case["expected"]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            yield Check("12", name.replace("_", " "), "fail", f"vectors.json: {type(error).__name__}: {error}")
            continue
        yield Check(section, name.replace("_", " "), "fail" if wrong else "pass",
                    f"{len(cases) - len(wrong)} of {len(cases)}" + (f"; first wrong: {wrong[0]}" if wrong else ""))


# --- The sandbox's checks -----------------------------------------------------

Observation = tuple[str, str, bool, str]        # clause, what is checked, whether it holds, what was observed


def sandbox_checks() -> Iterator[Check]:
    """Every clause that a publisher on loopback can show. A check that raises has failed."""
    for scene in SCENES:
        try:
            for clause, check, holds, observed in scene():
                yield Check(clause, check, "pass" if holds else "fail", observed)
        except Exception as error:  # noqa: BLE001
            yield Check(scene.__name__, "scene", "fail", f"{type(error).__name__}: {error}")


def scene_gates() -> Iterator[Observation]:
    """The twenty-one checks of the first harness, under their own labels, on the real clock."""
    with Sandbox() as publisher, Sandbox(crawl_delay=0.0) as fresh, publisher.bot() as bot:
        allowed = bot.fetch(publisher.origin + "/allowed")
        denied = bot.fetch(publisher.origin + "/denied")
        agents = {hit.path: hit.headers.get("user-agent", "absent") for hit in publisher.hits}
        for label, path in (("/allowed", "/allowed"), ("/robots.txt", "/robots.txt"), ("/blocklist.json", BLOCKLIST_PATH)):
            yield "R1", f"exact UA on {label}", agents.get(path) == USER_AGENT, agents.get(path, "never requested")
        yield "R2", "robots.txt blocks /denied for Walsh-Research", denied.outcome == "denied" and denied.gate == "R2", denied.reason
        yield "R2", "no GET /denied ever issued", "/denied" not in publisher.paths(), f"{len(publisher.hits)} requests"
        star = bot.may_fetch(publisher.origin + "/star-only", wait=False)
        yield "R2a", "named Walsh-Research group overrides `*`", star.allowed and star.group == UA_TOKEN, f"group={star.group}"
        yield "R2d", "Crawl-delay parsed from named group", star.crawl_delay == 2.0, f"crawl_delay={star.crawl_delay}"
        apex, below = bot.fetch("http://blocked.test/"), bot.fetch("http://www.blocked.test/x")
        yield "R3", "operator blocklist blocks apex `blocked.test`", apex.gate == "R3", apex.reason
        yield "R3a", "subdomain `www.blocked.test` blocked by apex entry", below.gate == "R3", below.reason
        other = bot.may_fetch(publisher.origin + "/allowed", wait=False)
        yield "R3", "unrelated host not falsely blocked", other.allowed, other.reason
        second = bot.fetch(publisher.origin + "/allowed")
        starts = [hit.monotonic for hit in publisher.hits if hit.path == "/allowed"]
        yield "R4b", "per-host spacing honors Crawl-delay (>=2s)", len(starts) == 2 and starts[1] - starts[0] >= 2.0, f"gap={starts[-1] - starts[0]:.3f}s"
        before = time.monotonic()
        first = bot.fetch(fresh.origin + "/allowed")
        took = time.monotonic() - before
        yield "R4c", "first request to unseen host not delayed", first.ok and first.waited == 0.0, f"waited={first.waited:.3f}s elapsed={took:.3f}s"
        flaky = bot.fetch(fresh.origin + "/flaky")
        calls = [hit.monotonic for hit in fresh.hits if hit.path == "/flaky"]
        yield "R5", "/flaky retried until 200", flaky.status == 200 and len(calls) == 3, f"status={flaky.status}, calls={len(calls)}"
        gaps = [calls[1] - calls[0], calls[2] - calls[1]]
        yield "R5", "no retry before Retry-After", min(gaps) >= 1.0, f"gaps={', '.join(f'{gap:.3f}s' for gap in gaps)}"
        yield "R5b", "Retry-After delta-seconds parsed", parse_retry_after("120", 0.0) == 120.0, f"{parse_retry_after('120', 0.0)}"
        nothing = parse_retry_after("", 0.0), parse_retry_after(None, 0.0)
        yield "R5b", "Retry-After empty/None -> None", nothing == (None, None), f"{nothing}"
        delays = [backoff_delay(2) for _ in range(20)]
        spread = max(delays) - min(delays)
        capped = backoff_delay(20, rand=lambda: 1.0)
        yield "R5a", "backoff is capped", capped == BACKOFF_CAP, f"attempt 20: at most {capped:g}s"
        yield "R5a", "backoff jitter produces variance", 0.5 < spread and max(delays) <= 4.0, f"min={min(delays):.3f} max={max(delays):.3f}"
        declared = {"/robots.txt", BLOCKLIST_PATH, "/allowed", "/flaky"}
        strange = set(publisher.paths() + fresh.paths()) - declared
        yield "R6", "no unexpected URL fetched (no recursion)", not strange, f"unexpected={sorted(strange)}"
        replayed = [publisher.hits[-1].headers.get(name, "absent") for name in ("if-none-match", "if-modified-since")]
        wanted = [publisher.answers["/allowed"][1][name] for name in ("ETag", "Last-Modified")]
        yield "R7", "ETag and Last-Modified are replayed byte for byte", replayed == wanted, f"{replayed}"
        yield "R7", "conditional GET yields 304 when ETag unchanged", second.outcome == "unchanged" and second.status == 304, f"status={second.status}"
        key = canonical_url("https://x.test/a#fragment")
        yield "R7b", "canonical URL drops #fragment", key == "https://x.test/a", key
        bodies = [name for name in allowed.to_dict() if name in ("body", "text")]
        yield "R6", "no body in an output", allowed.bytes > 0 and not bodies, f"{allowed.bytes} bytes read, fields={bodies}"


def scene_blocklist() -> Iterator[Observation]:
    """R3b, R3c, R10, and that the blocklist comes first."""
    with Sandbox(crawl_delay=0.0) as publisher, Sandbox(crawl_delay=0.0) as listed:
        clock = VirtualClock()
        bot = publisher.bot(clock=clock)

        def still_blocks() -> bool:
            clock.now += 7 * 3600
            return bot.may_fetch("http://www.blocked.test/", wait=False).gate == "R3"

        yield "R3", "the list is fetched before anything else", still_blocks() and publisher.paths() == [BLOCKLIST_PATH], f"asked={publisher.paths()}"
        good = publisher.answers[BLOCKLIST_PATH]
        publisher.answers[BLOCKLIST_PATH] = (404, {}, b"")
        missing = still_blocks()
        publisher.answers[BLOCKLIST_PATH] = (200, {}, b"User-agent: *\nDisallow: /\n")
        garbage = still_blocks()
        asked = publisher.paths().count(BLOCKLIST_PATH)
        yield "R3b", "retain last list on transient fetch failure", missing and garbage and asked == 3, f"404: {missing}, garbage: {garbage}, asked {asked} times"
        outcomes = []
        for body in (publisher.blocklist(updated=7, blocked=[]), publisher.blocklist(blocked=[{"domain": 7}]), publisher.blocklist(contract="walsh-research-blocklist/v10", blocked=[]),
                     publisher.blocklist(blocked=None)):
            publisher.answers[BLOCKLIST_PATH] = (200, {}, body)
            outcomes.append(still_blocks())
        yield "R3c", "schema-invalid document is rejected; prior list retained", all(outcomes), f"by the schema alone, wrong type, contract v10, no list: {outcomes}"
        publisher.answers[BLOCKLIST_PATH] = (200, {}, publisher.blocklist(schema=None, blocked=[{"domain": "other.test"}]))
        before = publisher.paths().count(SCHEMA_PATH)
        adopted = not still_blocks() and bot.may_fetch("http://other.test/", wait=False).gate == "R3"
        yield "R10", "no inline schema: the standalone one is fetched", adopted and not before and SCHEMA_PATH in publisher.paths(), f"adopted={adopted}"
        publisher.answers[SCHEMA_PATH] = (404, {}, b"")
        clock.now += 8 * 86400
        publisher.answers[BLOCKLIST_PATH] = (200, {}, publisher.blocklist(schema=None, blocked=[{"domain": "third.test"}]))
        stale = bot.may_fetch("http://third.test/", wait=False).gate == "R3"
        yield "R10", "a stale schema is kept where the fresh one cannot be had", stale, f"adopted={stale}"
        lone = publisher.bot(clock=VirtualClock())
        unproved = lone.may_fetch("http://third.test/", wait=False)
        yield "R10", "no schema at all: the document is not adopted", unproved.gate != "R3", f"gate={unproved.gate}"
        publisher.answers[BLOCKLIST_PATH] = good
        recovered = still_blocks()
        yield "R3", "a newer valid list replaces the old one", recovered, f"blocked.test: {recovered}"
        publisher.answers[BLOCKLIST_PATH] = (200, {}, publisher.blocklist(blocked=[{"domain": "127.0.0.1"}]))
        refused = publisher.bot(clock=VirtualClock()).fetch(listed.origin + "/allowed")
        yield "7", "R3 before R2: no robots.txt of a blocked host is asked for", refused.gate == "R3" and not listed.hits, f"requests={len(listed.hits)}"


def scene_pace() -> Iterator[Observation]:
    """R4 and R5 where time is virtual, what outlasts a process, and that threads take turns."""
    import tempfile
    import threading
    with Sandbox(crawl_delay=0.0) as publisher, Sandbox(crawl_delay=0.0) as other, tempfile.TemporaryDirectory() as folder:
        publisher.answers["/later"] = (503, {"Retry-After": "30"}, b"")
        patient = publisher.bot(clock=VirtualClock()).fetch(publisher.origin + "/later")
        yield "R5", "Retry-After in place of the schedule, each time", patient.waited >= 5 * 30.0, f"waited={patient.waited:.1f}s for five retries"
        eager = publisher.bot(clock=VirtualClock(), rand=lambda: 0.0).fetch(publisher.origin + "/busy")
        yield "R4", "a retry waits for its slot, whatever the dice say", eager.waited >= 5 * MIN_REQUEST_INTERVAL, f"waited={eager.waited:.3f}s for five retries"
        publisher.bot(clock=VirtualClock(), cache_dir=folder).fetch(publisher.origin + "/busy")
        next_run = publisher.bot(clock=VirtualClock(VirtualClock().now + 60.0), cache_dir=folder).fetch(publisher.origin + "/allowed")
        yield "R5", "a hold binds the next run", next_run.outcome == "deferred" and next_run.gate == "R5", next_run.reason
        threads = [threading.Thread(target=server.bot().fetch, args=(server.origin + "/slow",)) for server in (publisher, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        starts = sorted(hit.monotonic for server in (publisher, other) for hit in server.hits if hit.path == "/slow")
        yield "R4", "serial in the process: two threads, two hosts, one connection", len(starts) == 2 and starts[1] - starts[0] >= 0.1, f"gap={starts[-1] - starts[0]:.3f}s"
        clock = VirtualClock()
        bot = publisher.bot(clock=clock)
        before = bot.may_fetch(publisher.origin + "/denied", wait=False)
        clock.now += ROBOTS_TTL_SECONDS
        publisher.answers["/robots.txt"] = (500, {}, b"")
        held = bot.may_fetch(publisher.origin + "/denied", wait=False)
        yield "R2", "a held copy stays in force while robots.txt is out of reach", before.gate == held.gate == "R2", held.robots_source
        publisher.answers["/robots.txt"] = (302, {"Location": "http://blocked.test/robots.txt"}, b"")
        strayed = publisher.bot(clock=VirtualClock()).may_fetch(publisher.origin + "/denied", wait=False)
        yield "R3", "a hop of robots.txt to a blocked host is not followed", strayed.verdict is Verdict.UNKNOWN_UNREACHABLE, strayed.reason
        publisher.answers[BLOCKLIST_PATH] = (200, {}, publisher.blocklist(refresh="PT1H"))
        clock = VirtualClock()
        bot = publisher.bot(clock=clock)
        asked = []
        for hours in (0.0, 0.9, 0.2):
            clock.now += hours * 3600
            bot.may_fetch("http://blocked.test/", wait=False)
            asked.append(publisher.paths().count(BLOCKLIST_PATH))
        yield "R3", "the list is asked again after its own refresh", asked[0] == asked[1] == asked[2] - 1, f"requests at 0 h, 0.9 h, 1.1 h: {asked}"


def scene_robots() -> Iterator[Observation]:
    """R2 in its other weathers, R9, R6, R7 and R8, and what a redirect is."""
    with Sandbox(crawl_delay=0.0) as publisher:
        clock = VirtualClock()
        bot = publisher.bot(clock=clock, max_wait=7200.0)
        url = publisher.origin
        verdicts = [bot.may_fetch(url + path, wait=False).allowed for path in ("/wild/a.pdf", "/wild/a.pdf?x=1", "/wild/open.pdf")]
        yield "R2b", "`*` and `$`; the longest match counts what `*` consumed", verdicts == [False, True, False], f"a.pdf, a.pdf?x=1, open.pdf: {verdicts}"
        doubtful = bot.may_fetch(url + "/wild/open.pdf", wait=False)
        yield "R2c", "in doubt denied: an expanded `*` outweighs a shorter Allow", not doubtful.allowed, doubtful.reason
        redirected, refused = bot.fetch(url + "/redirected"), bot.fetch(url + "/moved")
        yield "R2", "a hop of a redirect goes through the gates", refused.gate == "R2" and "/denied" not in publisher.paths(), refused.reason
        yield "R4", "a redirect is followed as a request of its own", redirected.ok and redirected.attempts == 2, f"attempts={redirected.attempts}"
        picture = bot.fetch(url + "/picture.png")
        yield "R6", "an image is not read", picture.outcome == "fetched" and not picture.body, "; ".join(picture.warnings)
        notes = bot.fetch(url + "/page.md")
        accept = next(hit.headers.get("accept", "") for hit in publisher.hits if hit.path == "/page.md")
        yield "R9", "Accept asks for markdown first", accept.startswith("text/markdown"), accept
        yield "R9", "markdown links by the generic rule", [link.url for link in notes.links] == ["https://example.org/1", "https://example.org/2"], f"{len(notes.links)} links"
        results = [result.outcome for result in bot.run([url + "/feed.xml", url + "/feed.xml#a"])]
        yield "R7", "two spellings of one source are one", results == ["skipped", "fetched"], f"{results}"
        again = [result.outcome for result in bot.run([url + "/feed.xml"])]
        clock.now += 3601
        later = [result.outcome for result in bot.run([url + "/feed.xml"])]
        yield "R8", "a source fetched within the hour is skipped, then asked again", again == ["skipped"] and later == ["fetched"], f"{again}, {later}"
        given_up = bot.fetch(url + "/busy")
        calls = publisher.paths().count("/busy")
        yield "R5", "at most five retries, then given up and held back", given_up.outcome == "failed" and calls == 6, f"calls={calls}, {given_up.reason}"
        held = publisher.bot(clock=clock).fetch(url + "/allowed")
        yield "R5", "an exhausted back-off binds every other target of the host", held.outcome == "deferred" and held.gate == "R5", held.reason
        for status, expected in ((404, "allowed_implicit"), (500, "unknown_unreachable")):
            publisher.answers["/robots.txt"] = (status, {}, b"")
            decision = publisher.bot(clock=VirtualClock()).may_fetch(url + "/denied", wait=False)
            yield "R2", f"robots.txt answers {status}", decision.allowed and decision.verdict == expected, f"verdict={decision.verdict and decision.verdict.value}"
        wary = publisher.bot(clock=VirtualClock(), unreachable="defer").fetch(url + "/denied")
        yield "R2", "unreachable=\"defer\": later, not never", wary.outcome == "deferred" and wary.retry_at is not None, wary.reason


def scene_caches() -> Iterator[Observation]:
    """R11, R12: what another process finds; R13 and section 1.1: what the server sees."""
    import tempfile
    with Sandbox(crawl_delay=0.0) as publisher, tempfile.TemporaryDirectory() as folder:
        clock = VirtualClock()
        url = publisher.origin + "/allowed"
        with publisher.bot(clock=clock, cache_dir=folder) as bot:
            bot.fetch(url)
        publisher.hits.clear()
        clock.now += 5.0
        with publisher.bot(clock=clock, cache_dir=folder) as bot:
            second = bot.fetch(url)
        yield "R11", "a second run asks nothing that it still knows", publisher.paths() == ["/allowed"] and second.status == 304, f"asked={publisher.paths()}"
        publisher.hits.clear()
        clock.now += ROBOTS_TTL_SECONDS
        publisher.answers["/robots.txt"] = (200, {}, b"User-agent: *\nDisallow: /allowed\n")
        with publisher.bot(clock=clock, cache_dir=folder) as bot:
            stale = bot.fetch(url)
        yield "R12", "a stale entry blocks on its refresh", stale.gate == "R2" and "/allowed" not in publisher.paths(), stale.reason
        publisher.answers["/robots.txt"] = (200, {}, b"User-agent: *\nDisallow: /*impl=\n")
        publisher.hits.clear()
        tagged = publisher.bot(clock=VirtualClock(), tag="walsh/research@afd2c01").fetch(url)
        sent = next((hit.path for hit in publisher.hits if hit.path.startswith("/allowed")), "never requested")
        yield "R13", "tags at transmission only; the gates see the untagged URL", tagged.ok and sent == tag_url("/allowed", "walsh/research", "afd2c01"), sent
        publisher.hits.clear()
        publisher.bot(clock=VirtualClock()).fetch(url)
        yield "R13", "without an identity no tag", len(publisher.hits) >= 2 and all("impl=" not in path for path in publisher.paths()), f"asked={publisher.paths()}"
        publisher.hits.clear()
        person = publisher.bot(clock=VirtualClock(), interactive=True)
        typed = [person.fetch(url), person.fetch(url)]
        pace = sum(result.waited for result in typed)
        yield "1.1", "at a prompt: R1 holds, R4 does not, sha=repl", pace == 0.0 and len(publisher.hits) >= 2 and all(
            "sha=repl" in hit.path and hit.headers.get("user-agent") == USER_AGENT for hit in publisher.hits), f"waited={pace:g}s"
        private = publisher.bot(clock=VirtualClock(), allow_private=False, origin="https://wal.sh", transport=Door(proxies={}))
        private._blocklist_state = private._blocklist_state._replace(failed_at=private._clock.time())     # the origin is not asked here
        publisher.hits.clear()
        refused = private.fetch(url)
        yield "R3", "an address that is not public is refused before a byte is sent", refused.gate == "address" and not publisher.hits, refused.reason


def scene_manifests() -> Iterator[Observation]:
    """What else a site can say, and with which authority: R9, the policy model's hard rules, robots2.txt."""
    ask, identity = ROBOTS2_ASK_PATH, ROBOTS2_IDENTITY
    with Sandbox(crawl_delay=0.0) as publisher:
        url = publisher.origin

        def fresh_bot(**options: Any) -> Bot:
            publisher.hits.clear()
            return publisher.bot(**{"clock": VirtualClock(), **options})

        bot = fresh_bot()
        found = [(source.kind, source.url[len(url):], len(source.items)) for source in bot.discover(url + "/page")]
        yield "R9", "feeds that a page advertises, llms.txt, sitemaps: listed in this order", found == [
            ("feed", "/feed.xml", 0), ("feed", "/atom.xml", 0), ("llms.txt", "/llms.txt", 2), ("sitemap", "/sitemap.xml", 0)], f"{found}"
        asked = [path for path in publisher.paths() if path != BLOCKLIST_PATH]
        yield "R9", "of these only llms.txt is requested", asked == ["/robots.txt", "/page", "/llms.txt"], f"asked={asked}"
        kinds: dict[str, Any] = {}
        for path in ("/feed.xml", "/atom.xml", "/feed.json", "/page.md", "/sitemap.xml", "/sitemap.xml.gz"):
            opening = next(bot.discover(url + path), None)
            kinds[path] = opening and (opening.kind, len(opening.items))
        yield "R9", "RSS, Atom, JSON Feed and markdown by their items; a sitemap asked for itself, gzip too", kinds == {
            "/feed.xml": ("feed", 1), "/atom.xml": ("feed", 1), "/feed.json": ("feed", 1), "/page.md": ("markdown", 2),
            "/sitemap.xml": ("sitemap", 2), "/sitemap.xml.gz": ("sitemap", 2)}, f"{kinds}"
        hint = next(source for source in bot.discover(url + "/page") if source.kind == "llms.txt").items[1]
        hinted, listed = bot.fetch(hint.url), bot.fetch(url + "/denied")
        yield "R2", "llms.txt overrides no robots.txt, and a sitemap grants nothing", hinted.gate == listed.gate == "R2" and "/denied" not in publisher.paths(), hinted.reason
        publisher.answers["/allowed"] = (200, {**publisher.answers["/allowed"][1], "X-Robots-Tag": "noindex, walsh-research: noai"}, b"")
        tagged = bot.fetch(url + "/allowed")
        yield "policy", "X-Robots-Tag is surfaced, ours before everyone's", tagged.robots_directives == ["noai"] and any(
            line.startswith("noai") for line in tagged.warnings), f"{tagged.robots_directives}, {tagged.warnings}"
        signals = bot.may_fetch(url + "/allowed", wait=False).content_signals
        yield "policy", "Content-Signal of our group is shown", signals == {"search": "yes", "ai-train": "no"}, f"{signals}"

        plain = [hit for hit in publisher.hits if "robots2" in hit.path or "x-agent-identity" in hit.headers]
        yield "robots2", "without the option nothing is requested or announced", not plain, f"{len(plain)} of {len(publisher.hits)} requests"
        clock = VirtualClock()
        bot = fresh_bot(robots2=True, clock=clock)
        first, second = bot.fetch(url + "/allowed"), bot.fetch(url + "/allowed")
        seen = [(hit.method, hit.path.partition("?")[0]) for hit in publisher.hits if hit.path != BLOCKLIST_PATH]
        yield "robots2", "robots.txt, robots2.txt, its chain, one question, then the target", first.ok and second.ok and seen == [
            ("GET", "/robots.txt"), ("GET", "/robots2.txt"), ("GET", "/robots2-base.txt"), ("HEAD", ask), ("GET", "/allowed"), ("GET", "/allowed")], f"{seen}"
        question = next((hit for hit in publisher.hits if hit.method == "HEAD"), None)
        wanted = f"{ask}?directive=crawl&agent={ROBOTS2_AGENT}"
        yield "robots2", "the question names directive and agent, and carries the identity", question is not None and question.path == wanted and question.headers.get(
            "x-agent-identity") == identity, question.path if question else "never asked"
        agents = {hit.headers.get("x-agent-identity", "absent") for hit in publisher.hits if hit.path == "/allowed"}
        yield "robots2", "announce: yes adds X-Agent-Identity", agents == {identity}, f"{sorted(agents)}"
        yield "robots2", "rate: 30 is a request in two seconds", second.waited >= 2.0, f"waited={second.waited:.3f}s"
        refusals = [bot.fetch(url + path) for path in ("/star-only", "/robots2-denied", "/robots2-base-denied")]
        got = [result.final_url[len(url):] for result in refusals if result.final_url[len(url):] in publisher.paths()]
        yield "robots2", "scopes bind; path rules deny, those of the chain too", [result.gate for result in refusals] == ["robots2"] * 3 and not got, "; ".join(
            result.reason for result in refusals)
        uses = [bot.may(url + "/allowed", name).reason.partition(":")[0] for name in ("train", "quote", "derivative", "monetise")]
        yield "robots2", "may() answers in the words of the text", uses == ["no", "short-only", "ask", "unstated"], f"train, quote, derivative, monetise: {uses}"
        clock.now += ROBOTS2_ASK_TTL_SECONDS
        heads = len(publisher.paths("HEAD"))
        third = bot.fetch(url + "/allowed")
        yield "robots2", "an allow holds for 24 hours, then it is asked for again", third.ok and len(publisher.paths("HEAD")) == heads + 1, f"{heads} questions, then {len(publisher.paths('HEAD'))}"
        publisher.answers["/robots2.txt"] = (500, {}, b"")
        clock.now += ROBOTS_TTL_SECONDS
        kept = bot.fetch(url + "/robots2-denied")
        yield "robots2", "kept like robots.txt while unreachable", kept.gate == "robots2", kept.reason
        publisher._publish()

        for answer, outcome in (((200, {"X-Robots2-Decision": "deny"}, b""), "denied"), ((404, {}, b""), "denied"), ((500, {}, b""), "denied"),
                                ((200, {"X-Robots2-Decision": "perhaps"}, b""), "denied"), ((429, {"Retry-After": "900"}, b""), "deferred")):
            publisher.answers[ask] = answer
            result = fresh_bot(robots2=True).fetch(url + "/allowed")
            yield "robots2", f"answer {answer[0]} {answer[1].get('X-Robots2-Decision', '')}".rstrip() + f" is {outcome}", (
                result.outcome == outcome and result.gate == "robots2" and "/allowed" not in publisher.paths()), result.reason
        publisher.answers[ask] = (200, {"X-Robots2-Decision": "allow-once"}, b"")
        bot = fresh_bot(robots2=True)
        both = bot.fetch(url + "/allowed").ok and bot.fetch(url + "/allowed").ok
        yield "robots2", "allow-once is for one request", both and len(publisher.paths("HEAD")) == 2, f"questions={len(publisher.paths('HEAD'))}"
        publisher.answers["/robots2.txt"] = (200, {}, b"crawl: ask\nannounce: no\n")
        shy = fresh_bot(robots2=True).fetch(url + "/allowed")
        named = {hit.method for hit in publisher.hits if hit.headers.get("x-agent-identity") == identity}
        yield "robots2", "announce: no, and still every question says who asks", shy.ok and named == {"HEAD"}, f"identity sent with {sorted(named)}"
        publisher._publish()
        other = fresh_bot(robots2="monitoring").fetch(url + "/allowed")
        yield "robots2", "a category's own block overrides", other.gate == "robots2" and not publisher.paths("HEAD"), other.reason
        publisher.answers["/robots.txt"] = (200, {}, b"User-agent: *\nDisallow: /.well-known/robots2-ask\nDisallow: /denied\n")
        unasked = fresh_bot(robots2=True).fetch(url + "/allowed")
        yield "robots2", "the question is itself behind robots.txt", unasked.gate == "robots2" and not publisher.paths("HEAD"), unasked.reason
        publisher.answers["/robots2.txt"] = (200, {"Content-Type": "text/plain"}, b"User-agent: *\nAllow: /\ncrawl: yes\n")
        widened = fresh_bot(robots2=True).fetch(url + "/denied")
        yield "robots2", "it narrows, and never widens", widened.gate == "R2" and "/denied" not in publisher.paths(), widened.reason


SCENES = (scene_gates, scene_blocklist, scene_pace, scene_robots, scene_caches, scene_manifests)


# --- The live fixtures, spec 13 and 16 ------------------------------------------

def live_checks(bot: Bot) -> Iterator[Check]:
    """The fixtures and canaries of the origin, at the pace that its robots.txt asks."""
    origin = bot.origin

    def fetched(clause: str, check: str, url: str) -> tuple[Check, Result]:
        result = bot.probe(url)
        if result.status is None and (result.outcome in ("failed", "deferred") or result.gate == "address"):     # no HTTP answer
            return Check(clause, check, "skip", f"{url}: {result.reason}"), result
        holds = result.outcome == "unchanged" or result.outcome == "fetched" and result.status == 200
        return Check(clause, check, "pass" if holds else "fail", f"{result.outcome} {result.status or result.gate or ''}: {result.reason or url}"), result

    def refused(clause: str, check: str, url: str, gate: str) -> Check:
        if gate == "R3" and not bot.blocklist_size:     # nobody is asked who may have opted out
            return Check(clause, check, "fail" if bot.blocklist_status else "skip", "no list with an entry could be adopted")
        decision = bot.may_fetch(url, wait=False)
        if gate == "R2" and decision.verdict is Verdict.UNKNOWN_UNREACHABLE:
            return Check(clause, check, "skip", f"{url}: {decision.reason}")
        return Check(clause, check, "pass" if decision.gate == gate else "fail", f"{decision.gate or 'allowed'}: {decision.reason}")

    yield fetched("R1", "the policy page of the User-Agent is there", origin + "/bot/")[0]
    index, result = fetched("13", "the fixtures index", origin + FIXTURES_PATH)
    yield index
    fixtures: dict[str, Any] = {}
    if result.body:
        try:
            document = parse_json(result.body, "test-fixtures.json")
            fixtures = {name: value for name, value in document["fixtures"].items() if isinstance(value, str)}
            known = re.fullmatch(r"walsh-research-test-fixtures/v1(\.[0-9]+)?", document["contract"]) is not None
            yield Check("13", "the fixtures' contract", "pass" if known else "fail", document["contract"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield Check("13", "the fixtures' contract", "fail", f"{type(error).__name__}: {error}")
    fixture_urls = {**DEFAULT_FIXTURES, **fixtures}
    blocked_host = fixture_urls["operator_blocked_host"]
    yield refused("R3", f"the live list blocks {printable(blocked_host, 80)}", f"https://{blocked_host}/", "R3")
    yield refused("R3a", "and what is below it", f"https://www.{blocked_host}/", "R3")
    yield fetched("R2", "the external positive", fixture_urls["external_positive"])[0]
    for clause, fixture in (("R2", "robots_allowed_sentinel"), ("R2a", "walsh_only_allowed")):
        url = fixture_urls[fixture]
        yield fetched(clause, f"{fixture} is fetched", url)[0]
        for ending in (".html", ".md"):
            decision = bot.may_fetch(url + ending, wait=False)
            outcome = "skip" if decision.verdict is Verdict.UNKNOWN_UNREACHABLE else "pass" if decision.allowed else "fail"
            yield Check(clause, f"{fixture}{ending} is allowed", outcome, decision.reason)
    for ending in ("", ".html", ".md"):
        yield refused("R2", f"robots_disallowed{ending} is refused", fixture_urls["robots_disallowed"] + ending, "R2")


def detect_identity(environ: Any, folder: str) -> str | None:
    """R13: "ORG/REPO@SHA" from GitHub's variables, else from the git repository around the file, else None."""
    if environ.get("GITHUB_REPOSITORY"):
        return valid_tag(environ["GITHUB_REPOSITORY"] + ("@" + environ["GITHUB_SHA"][:7] if environ.get("GITHUB_SHA") else ""))
    import subprocess

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", "-C", folder, *arguments], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""

    remote = re.search(r"([\w.-]+/[\w.-]+?)(?:\.git)?/?$", git("remote", "get-url", "origin"), re.ASCII)
    sha = git("rev-parse", "--short", "HEAD")
    return valid_tag(remote.group(1) + ("@" + sha if sha else "")) if remote else None


def valid_tag(text: str) -> str | None:
    try:
        parse_tag(text)
    except ValueError:
        return None
    return text


# --- The attestation, spec 14 -----------------------------------------------------

REQUIREMENTS = ("R1", "R2", "R2a", "R2b", "R2c", "R2d", "R3", "R3a", "R3b", "R3c", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13")


def attestation_of(checks: Sequence[Check], user_agent: str) -> dict[str, Any]:
    """The document of spec 14: a requirement is true where it has checks, and each of them, and of its letters, has passed."""
    def is_met(requirement: str) -> bool:
        outcomes = [check.outcome for check in checks if re.fullmatch(requirement + "[a-z]?", check.clause)]
        return bool(outcomes) and all(outcome == "pass" for outcome in outcomes)

    whole = all(check.outcome != "fail" for check in checks)
    requirements = {name: is_met(name) for name in REQUIREMENTS}
    return {"contract": "walsh-research-attestation/v1", "tool": TOOL_NAME, "tool_version": __version__, "spec": SPEC_VERSION,
            "user_agent": user_agent, "requirements": requirements, "conformant": whole and all(requirements.values()),
            "checks": {"passed": sum(check.outcome == "pass" for check in checks), "of": len(checks)}}


def measured_user_agent() -> str:
    """The User-Agent as a server receives it."""
    with Sandbox() as publisher:
        publisher.bot().fetch(publisher.origin + "/allowed")
        return next((hit.headers.get("user-agent", "") for hit in publisher.hits), "")


def attest() -> dict[str, Any]:
    """The attestation document of spec 14, every value measured now, in about six seconds."""
    return attestation_of(list(sandbox_checks()), measured_user_agent())


# --- The process-wide bot: import walsh_research; walsh_research.fetch(url) -----------

DEFAULT_BOT: list[Bot] = []     # made when first asked for: an import touches nothing


def default_bot() -> Bot:
    if not DEFAULT_BOT:
        DEFAULT_BOT.append(Bot())
    return DEFAULT_BOT[0]


def may_fetch(url: str, wait: bool = True) -> Decision:
    """Bot.may_fetch on the process-wide bot."""
    return default_bot().may_fetch(url, wait)


def fetch(url: str, fresh: bool = False) -> Result:
    """Bot.fetch on the process-wide bot."""
    return default_bot().fetch(url, fresh)


def run(urls: Iterable[str], min_age: float = 3600.0) -> Iterator[Result]:
    """Bot.run on the process-wide bot."""
    return default_bot().run(urls, min_age)


def discover(url: str) -> Iterator[Source]:
    """Bot.discover on the process-wide bot."""
    return default_bot().discover(url)


# === 17. DESK   the command ==============================================
# Owns arguments, printing, progress and exit codes. stdout carries results; stderr carries everything else.

EPILOG = """\
examples:
  walsh_research.py https://example.org/ https://example.net/feed.xml
  walsh_research.py --check https://example.org/private
  walsh_research.py --input targets.txt --json >> results.jsonl
exit codes:
  0 all fetched, unchanged or fresh      1 a target failed or was deferred
  2 command line or input file wrong     3 nothing failed, a gate denied
  4 live fixtures out of reach         130 interrupted (143 by SIGTERM)
"""
MODES = {"check": "decide and explain gate by gate; fetch no target", "discover": "list a target's feeds, markdown, llms.txt and sitemaps",
         "selftest": "prove conformance: vectors, sandbox, live fixtures", "attest": "print the attestation document, measured now"}
FOUND_AND_WANTED = (            # how argparse says it: how we do
    (r"^argument (-\w/)?", ""), ("expected one argument", "found nothing after it, wanted one value"),
    ("ignored explicit argument", "wanted no value, found"), ("invalid int value:", "wanted a whole number, found"),
    ("not allowed with argument", "wanted one of them, found it beside"),
    ("invalid parse_wait value:", "wanted seconds (90), units (30s, 5m, 1h30m, 1d) or ISO 8601 (PT5M), found"))
WORDS = {"fetched": ("OK", 32), "unchanged": ("SAME", 32), "denied": ("DENY", 33), "deferred": ("WAIT", 36), "skipped": ("SKIP", 2),
         "failed": ("FAIL", 31), "pass": ("PASS", 32), "fail": ("FAIL", 31), "skip": ("SKIP", 2)}       # outcome: word, ANSI colour
WELL = ("fetched", "unchanged", "skipped", "pass")              # what --quiet says nothing of
MAX_URL_COLUMNS = 60            # ours: characters to which URLs are padded; longer ones stay whole


class Misuse(Exception):
    """The command line or an input file is wrong: what was found, then what was wanted."""


# --- Arguments ----------------------------------------------------------------

def argument_parser() -> Any:
    import argparse  # only the command needs it

    class OneLineParser(argparse.ArgumentParser):
        def format_help(self) -> str:
            return super().format_help().replace("\n\n", "\n")

        def error(self, message: str) -> Any:
            for said, better in FOUND_AND_WANTED:
                message = re.sub(said, better, message)
            raise Misuse(message)

    parser = OneLineParser(
        "walsh_research.py", "%(prog)s [options] URL...", "Fetches the web politely, and proves it. One line a target: what happened, why.",
        EPILOG, add_help=False, allow_abbrev=False, formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80))
    add = parser.add_argument_group("targets").add_argument
    add("urls", metavar="URL", nargs="*", help="what to fetch; - reads stdin, one URL a line, # comments")
    add("--input", metavar="FILE", action="append", default=[], help="read targets from FILE as well")
    group = parser.add_argument_group("what to do (without one of these: fetch each target)")
    add = group.add_mutually_exclusive_group().add_argument
    for mode, said in MODES.items():
        add(f"--{mode}", dest="mode", action="store_const", const=mode, default="fetch", help=said)
    group.add_argument("--version", action="version", version=f"walsh_research {__version__} ({SPEC_VERSION})", help="print the version")
    group.add_argument("-h", "--help", action="help", help="print this screen")
    add = parser.add_argument_group("pace and limits (TIME is 90, 5m, 1h30m or PT5M)").add_argument
    add("--min-age", metavar="TIME", type=parse_wait, default="1h", help="skip what was fetched less than TIME ago (default %(default)s)")
    add("--force", action="store_true", help="fetch it all the same; overrides --min-age alone")
    add("--max-wait", metavar="TIME", type=parse_wait, default="5m", help="defer what may only be asked later (default %(default)s)")
    add("--timeout", metavar="SECONDS", type=parse_wait, default="30", help="for one whole request (default %(default)s)")
    add("--max-bytes", metavar="N", type=int, default="10485760", help="of one body, decoded (default %(default)s)")
    add("--unreachable", metavar="WHAT", default="allow", help="while robots.txt is: allow or defer (default %(default)s)")
    add("--robots2", action="store_true", help="obey robots2.txt as well")
    add("--allow-private", action="store_true", help="permit addresses that are not public")
    group = parser.add_argument_group("cache and output")
    add = group.add_mutually_exclusive_group().add_argument
    add("--cache-dir", metavar="DIR", type=lambda text: os.path.expanduser(text) if text and text != PLATFORM_CACHE else PLATFORM_CACHE, default=PLATFORM_CACHE,
        help="by default $WALSH_RESEARCH_CACHE, else the platform's")
    add("--no-cache", dest="cache_dir", action="store_const", const=None, help="read no cache and keep none")
    group.add_argument("--json", action="store_true", help="JSON Lines on stdout")
    group.add_argument("-q", "--quiet", action="store_true", help="only what was not OK, SAME or SKIP; no summary")
    group.add_argument("-v", "--verbose", action="store_true", help="also each request, wait and gate, on stderr")
    add = parser.add_argument_group("proof").add_argument
    add("--offline", action="store_true", help="with --selftest: vectors and sandbox alone")
    add("--origin", metavar="URL", default=ORIGIN, help="publishes the blocklist (default %(default)s)")
    add("--tag", metavar="ORG/REPO[@SHA]", help="sign requests to the origin (R13)")
    return parser


def read_arguments(argv: Sequence[str]) -> Any:
    """The options by name, `urls` and `input` among them. Misuse: it cannot be meant. SystemExit: help or version, printed by now."""
    parser = argument_parser()
    options, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        import difflib  # only where something was misspelt
        near = difflib.get_close_matches(unknown[0], re.findall(r"--[a-z][\w-]+", parser.format_help()), 1, 0.7)
        raise Misuse(f"found {printable(unknown[0], 40)}, which is no option; " + (f"did you mean {near[0]}?" if near else "see --help"))
    has_targets, is_proof = bool(options.urls or options.input), options.mode in ("selftest", "attest")
    contradictions = {
        "--offline: found no --selftest, wanted it with --selftest": options.offline and options.mode != "selftest",
        f"--force: found --{options.mode}, wanted it where targets are fetched": options.force and options.mode != "fetch",
        f"--{options.mode}: found a target, wanted none": is_proof and has_targets,
        "found no target, wanted a URL, - for stdin, or --input FILE; --help shows all": not is_proof and not has_targets}
    for why in filter(contradictions.get, contradictions):
        raise Misuse(why)
    return options


def lines_of(name: str) -> list[str]:
    """The targets in a file, or in stdin ("-"). Misuse: it cannot be read, or has none."""
    shown, wanted = "stdin" if name == "-" else f"--input {printable(name, 400)}", "wanted a text file, one URL a line"
    import pathlib  # only for targets from a file
    try:
        data = sys.stdin.buffer.read() if name == "-" else pathlib.Path(name).read_bytes()
    except (OSError, ValueError, AttributeError) as error:      # the last: sys.stdin is None where it was closed
        raise Misuse(f"{shown}: {getattr(error, 'strerror', None) or 'found it closed'}; {wanted}") from None
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    lines = [re.sub(r"(?:^|\s)#.*", "", line).strip() for line in text.splitlines()]
    if "\0" in text or not any(lines):
        raise Misuse(f"{shown}: found {'binary data' if any(lines) else 'no target'}, {wanted}")
    return [line for line in lines if line]


def terminal_columns(stream: Any) -> int:
    """How wide it is, where it is a terminal that moves its cursor when told to; elsewhere 0."""
    with suppress(AttributeError, ValueError, OSError):
        if stream.isatty() and os.environ.get("TERM") != "dumb" and (sys.platform != "win32" or "WT_SESSION" in os.environ):
            return os.get_terminal_size(stream.fileno()).columns or 80
    return 0


def say(line: str) -> None:
    """A line on stderr. That nobody reads it stops nothing."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class TickingClock(SystemClock):
    """The system's clock, whose sleep wakes up now and then to tell how long it still is."""

    def __init__(self, tick: Callable[[float], None]) -> None:
        self._tick = tick

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while seconds > 0.0:
            self._tick(seconds)
            time.sleep(min(seconds, STATUS_TICK_SECONDS))
            seconds = until - time.monotonic()


class Desk:
    """What was asked, how it is shown, and what came of it."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.width = terminal_columns(sys.stdout)       # 0: a line is a line, however long
        self.is_coloured = self.width and not os.environ.get("NO_COLOR")
        self.is_showing = False
        self.url_columns = self.requests = self.total = self.input_exit_code = 0
        self.clock = TickingClock(self.tick)
        self.started_at = self.clock.monotonic()
        self.counts: collections.Counter[str] = collections.Counter()
        self.waited: dict[tuple[str, str], float] = collections.defaultdict(float)      # (host, why more than R4's second)
        self.again: list[tuple[float, str]] = []
        self.bot: Bot | None = None

    def make_bot(self, **changes: Any) -> Bot:
        """A bot as the options want it. Misuse: they would break a promise."""
        chosen = {name: getattr(self.options, name) for name in (
            "cache_dir", "origin", "timeout", "max_wait", "max_bytes", "unreachable", "robots2", "allow_private", "tag")}
        try:
            self.bot = Bot(clock=self.clock, warn=lambda line: self.tell(f"warning: {line}"), trace=self.hear, **{**chosen, **changes})
        except ValueError as error:
            raise Misuse(str(error)) from None
        return self.bot

    def read_targets(self) -> list[str]:
        """The targets; a file that is wrong is told, and costs the others nothing."""
        targets = [url for url in self.options.urls if url != "-"]
        for name in ["-"] * ("-" in self.options.urls) + self.options.input:
            try:
                targets += lines_of(name)
            except Misuse as error:
                self.input_exit_code = 2
                self.tell(f"walsh_research.py: {error}")
        self.total = len(targets)
        self.url_columns = min(MAX_URL_COLUMNS, max(map(len, targets), default=0))
        return targets

    # --- Voices -----------------------------------------------------------

    def show(self, text: str = "") -> None:
        """The one live line on a terminal's stderr, gone with the next that stays; nothing at all elsewhere."""
        columns = terminal_columns(sys.stderr) if (text or self.is_showing) and not self.options.quiet else 0
        if columns:
            if text and self.total > 1 and self.bot is not None:
                hosts = self.bot.hosts_left
                text = f"{sum(self.counts.values())}/{self.total} · " + (f"{counted(hosts, 'host')} · " if hosts else "") + text
            self.is_showing = bool(text)
            with suppress(OSError, ValueError):     # that nobody watches stops nothing
                sys.stderr.write("\r\x1b[2K" + (text if len(text) < columns - 3 else text[:columns - 5] + "…"))
                sys.stderr.flush()

    def tell(self, line: str) -> None:
        self.show()
        say(printable(line, 2000))

    def put(self, line: str) -> None:
        """A line on stdout, at once."""
        self.show()
        if sys.stdout is None:
            raise OSError(errno.EBADF, "stdout is closed")
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()

    def put_json(self, value: Any, indent: int | None = None) -> None:
        import json
        self.put(json.dumps(value, allow_nan=False, indent=indent))

    def put_outcome(self, value: Any, outcome: str, code: str, name: str, detail: str) -> None:
        """An object, or a line in columns: word, status or gate, URL, detail; the last below, where a terminal is too narrow for both."""
        if self.options.quiet and outcome in WELL:
            return
        if self.options.json:
            self.put_json(value.to_dict())
            return
        (word, colour), name = WORDS[outcome], printable(name, MAX_URL_LENGTH)
        head = (f"\x1b[{colour}m{word:<4}\x1b[0m" if self.is_coloured else f"{word:<4}") + f"  {code:<7}  "
        if self.width and 15 + max(len(name), self.url_columns) + 2 + len(detail) > self.width:
            self.put(head + name)
            self.put_folded(" " * 15, detail)
        else:
            self.put(f"{head}{name:<{self.url_columns}}  {detail}".rstrip())

    def put_folded(self, lead: str, text: str) -> None:
        """Text after its lead, folded to the terminal's width; no URL in it is broken."""
        import textwrap
        self.put(textwrap.fill(text, max(40, self.width or sys.maxsize), initial_indent=lead, subsequent_indent=" " * len(lead),
                               break_long_words=False, break_on_hyphens=False))

    def hear(self, line: str) -> None:
        """What the bot says of its work: counted, shown while it lasts, and told where that was asked for."""
        self.requests += line.startswith(("GET ", "HEAD "))
        self.tell(line) if self.options.verbose else self.show(line)

    def tick(self, seconds: float) -> None:
        """What a wait is for, while it lasts."""
        host, why, left = self.bot.outlook() if self.bot is not None else ("", "", 0.0)
        line = f"waiting {seconds:.1f} s" + (f" for {host}" if host else "") + (f" ({why})" if why else "")
        self.show(line + (f" · about {spell_seconds(left)} left" if left > 2.0 else ""))

    # --- What can be asked for --------------------------------------------

    def fetch(self, targets: list[str]) -> int:
        with self.make_bot() as bot:
            try:
                for result in bot.run(targets, min_age=0.0 if self.options.force else self.options.min_age):
                    self.note(result)
                    if self.options.verbose and (result.attempts or result.gate is not None):
                        self.tell_gates(bot, result)
                    self.put_result(result)
            except KeyboardInterrupt:
                self.summarize()
                raise
        self.summarize()
        return self.exit_code()

    def note(self, result: Result) -> None:
        self.counts[result.outcome] += 1
        if result.waited >= 0.05:
            asked = f"Crawl-delay {result.crawl_delay:g}" if result.crawl_delay else ""
            why = "back-off" if result.attempts > 1 + len(result.redirects) else asked
            self.waited[host_of(result.final_url or result.url), why] += result.waited
        if result.retry_at and result.outcome in ("deferred", "failed"):
            self.again.append((result.retry_at, result.url))

    def tell_gates(self, bot: Bot, result: Result) -> None:
        """As --check explains them, but for the pace and the next step, which are over."""
        is_refused = result.outcome in ("denied", "deferred")
        reason = result.reason if is_refused else spell_rule(result.rule) if result.rule else "no rule forbids it"
        decision = Decision(False, result.final_url or result.url, result.gate if is_refused else None, reason, result.verdict, result.rule,
                            group=result.group, robots_source=result.robots_source, content_signals=result.content_signals)
        for name, said in bot.explain(decision):
            self.tell(f"      {name:<10} {said}")

    def put_result(self, result: Result) -> None:
        """What came, or why not."""
        said = [printable(result.reason, 400)]
        if result.outcome == "fetched":
            said = [counted(result.bytes, "byte"), result.content_type.partition(";")[0].strip()]
            said += [f'"{printable(result.title, 60)}"'] * bool(result.title) + [counted(len(result.links), "link")] * bool(result.links)
        said += [f"redirected to {printable(result.final_url, 400)}"] * bool(result.redirects)
        said += [f"again at {iso_utc(result.retry_at)}"] if result.retry_at and result.outcome in ("deferred", "failed") else []
        said += [printable(line, 200) for line in result.warnings]
        self.put_outcome(result, result.outcome, str(result.status or result.gate or "-"), result.url, ", ".join(filter(None, said)))

    def exit_code(self) -> int:
        return self.input_exit_code or (1 if self.counts["failed"] or self.counts["deferred"] else 3 if self.counts["denied"] else 0)

    def summarize(self) -> None:
        """How it went: outcomes, requests, waits, and what to try again when."""
        if self.options.quiet or not self.total:
            return
        outcomes = ", ".join(f"{self.counts[outcome]} {outcome}" for outcome in WORDS if self.counts[outcome]) or "nothing done"
        left = self.total - sum(self.counts.values())
        line = f"{counted(self.total, 'target')}: {outcomes}" + (f", {left} not reached" if left else "")
        line += f"; {counted(self.requests, 'request')} in {spell_seconds(self.clock.monotonic() - self.started_at)}"
        if self.waited:
            host, why = max(self.waited, key=lambda host_and_why: self.waited[host_and_why])
            line += f"; waited {spell_seconds(sum(self.waited.values()))}, most for {host}" + (f" ({why})" if why else "")
        self.tell(line)
        if self.again:
            at, url = min(self.again)
            self.tell(f"again from {iso_utc(at)}: {url}" + (f" and {len(self.again) - 1} more" if len(self.again) > 1 else ""))

    def check(self, targets: list[str]) -> int:
        with self.make_bot() as bot:
            for url in targets:
                decision = bot.may_fetch(url, wait=False)
                outcome = "fetched" if decision else "failed" if decision.gate is None else "deferred" if decision.retry_at else "denied"
                self.counts[outcome] += 1
                again = f", again at {iso_utc(decision.retry_at)}" if decision.retry_at else ""
                self.put_outcome(decision, outcome, decision.gate or "-", decision.url, printable(decision.reason, 400) + again)
                is_told = not self.options.json and outcome != "failed" and not (self.options.quiet and decision)
                for name, said in bot.explain(decision) if is_told else ():
                    self.put_folded(f"      {name:<10} ", printable(said, 400))
        return self.exit_code()

    def discover(self, targets: list[str]) -> int:
        with self.make_bot() as bot:
            for url in targets:
                found = 0
                for found, source in enumerate(bot.discover(url), 1):
                    self.put_json(source.to_dict()) if self.options.json else self.put_source(source)
                self.counts["fetched" if found else "failed"] += 1
                result = bot.last_result
                if not found and result is not None and (self.options.json or not result.ok):
                    self.put_result(result)
                elif not found:
                    self.tell(f"{mask_credentials(url)}: found no feed, no markdown, no llms.txt and no sitemap")
        return self.exit_code()

    def put_source(self, source: Source) -> None:
        said = [counted(len(source.items), "item") if source.items else "listed"]
        said += [f'"{printable(source.title, 60)}"'] * bool(source.title) + [printable(source.warning, 200)] * bool(source.warning)
        self.put(f"{source.kind:<8}  {printable(source.url, MAX_URL_LENGTH)}  {', '.join(said)}")
        for item in source.items if self.options.verbose else ():
            self.put(f"          {printable(item.url, MAX_URL_LENGTH)}  {printable(getattr(item, 'title', ''), 100)}".rstrip())

    def selftest(self) -> int:
        counts: collections.Counter[str] = collections.Counter()
        self.url_columns = 66       # ours: the longest name of a check
        folder, is_online = os.path.dirname(os.path.abspath(__file__)), not self.options.offline
        tag = self.options.tag or (detect_identity(os.environ, folder) if is_online else None)      # R13, where it is known who asks
        with self.make_bot(cache_dir=None, tag=tag) as bot:         # the fixtures are asked for afresh
            live = live_checks(bot) if is_online else ()
            for checks in vector_checks(os.path.join(folder, "vectors.json")), sandbox_checks(), live:
                for check in checks:
                    counts[check.outcome] += 1
                    counts["out of reach"] += checks is live and check.outcome == "skip"
                    self.put_outcome(check, check.outcome, check.clause, check.check, printable(check.observed, 200))
        summary = {"passed": counts["pass"], "failed": counts["fail"], "skipped": counts["skip"]}
        self.put_json({"summary": summary}) if self.options.json else self.put(", ".join(f"{n} {word}" for word, n in summary.items()))
        return 1 if counts["fail"] else 4 if counts["out of reach"] else 0

    def attest(self) -> int:
        self.show("measuring in the sandbox, about six seconds")
        document = attest()
        self.put_json(document, None if self.options.json else 2)
        return 0 if document["conformant"] else 1


def command(argv: Sequence[str]) -> int:
    """One invocation, from its arguments to its exit code."""
    try:
        desk = Desk(read_arguments(argv))
    except SystemExit:              # argparse has printed help or version
        print(end="", flush=True)
        return 0
    try:
        if desk.options.mode in ("selftest", "attest"):
            return desk.selftest() if desk.options.mode == "selftest" else desk.attest()
        targets = desk.read_targets()
        return {"fetch": desk.fetch, "check": desk.check, "discover": desk.discover}[desk.options.mode](targets) if targets else 2
    finally:
        desk.show()


def main(argv: Sequence[str] | None = None) -> int:
    """The command: its arguments (`sys.argv[1:]` by default) to its exit code. Prints, and handles SIGTERM while it runs."""
    import json
    import signal

    def terminate(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt(143)

    words = sys.argv[1:] if argv is None else argv
    previous = None
    with suppress(ValueError):      # not the main thread: signals are somebody else's
        previous = signal.signal(signal.SIGTERM, terminate)
    try:
        return command(words)
    except Misuse as error:
        say(json.dumps({"error": str(error)}) if "--json" in words else f"walsh_research.py: {printable(str(error), 2000)}")
        return 2
    except KeyboardInterrupt as error:
        return error.args[0] if error.args else 130
    except OSError as error:        # a full disk behind stdout; or a closed pipe, and whoever read has heard enough
        with suppress(OSError, ValueError, AttributeError):     # the interpreter's own flush at exit shall have nothing to complain about
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0
        say(f"walsh_research.py: stdout: {error.strerror or error}")
        return 1
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


if __name__ == "__main__":
    sys.exit(main())
