import type { EvidenceScope } from './scope.ts'

/** The page that tells an auditor what is in a pack, what it shows, and what it does not. */
export const readmeOf = ({
  tree,
  newest,
  first,
  count,
  since,
  until,
}: EvidenceScope): string => `# Evidence of ${tree.origin}

${count} rows of the audit ledger of a Sallyport gateway${since === null ? '' : ` since ${since}`}${until === null ? '' : ` until ${until}`}: leaves ${first} to ${first + count - 1}
of the log ${tree.origin}, under a signed checkpoint of ${newest.size} rows.

## How to verify it

    python3 verify.py PACK.zip --key 'VERIFIER KEY'
    node verify.mjs PACK.zip --key 'VERIFIER KEY'

With \`--tsa CA.pem\`, the time stamps in the pack are verified with the CA certificates of an authority that you trust.
Get the verifier key, a checkpoint, the key of a witness or such a CA from elsewhere, and not from this pack: with those
in the pack, the best possible verdict is CONSISTENT, NOT WITNESSED. \`verify.py\` needs only Python 3.9;
\`verify.mjs\`, if it is in the pack, needs only Node 22. A verifier that comes with what it verifies may be forged with
it: get the verifiers from elsewhere too, compare their digests with those that the project publishes, or write your own
from the project's page on the ledger.

## What each file shows

| File | What it holds | SOC 2 | Other |
|---|---|---|---|
| rows.ndjson, rows.csv | every recorded call and change, in the order of the log | CC7.2, CC7.3 | EU AI Act Art. 12 (records over the lifetime), Art. 19 (logs that are kept), Art. 26(6) |
| sets-start.json, sets-end.json | what each principal was allowed to do at both ends of the period | CC6.1, CC6.3 | ISO/IEC 42001 A.3.2 (roles and responsibilities) |
| grants.ndjson | each change of what somebody may do: who made it, when, what it was before, and the rehearsal that it was based on | CC6.2, CC6.3, CC8.1 | EU AI Act Art. 26(1) |
| refusals.csv | each call that was refused, and why | CC6.1, CC7.2 | EU AI Act Art. 26(5) |
| tools.json | tools of MCP servers that were pinned, quarantined and approved | CC8.1 | ISO/IEC 42001 A.10.3 (suppliers) |
| sign-ins.ndjson | operators who signed in, and who was refused | CC6.1, CC7.2 | |
| inventory.json | the keys and CAs that were in force, the anchors, and the bounds of this pack | CC6.1 | |
| checkpoints, tiles, anchors, key.txt | what binds the rows to signed checkpoints, and what others have said about those | CC7.2 | EU AI Act Art. 12 |
| SHA256SUMS | the digest of every other file | | |

## What it does not show

- What was said: it contains prompts, answers, arguments and results only as salted digests.
- That no call went around the gateway. It shows only the calls that came through the gateway.
- That the gateway's clock was right. A witness or a time stamp shows only that a checkpoint existed by a certain time.
- Anything about rows that were not sealed when it was made, or that were recorded before the log began.
- That a decision followed from authority that was given before the first row of this pack: the rows of earlier changes
  are not in it.
- That a control is sufficient. It shows that the control was applied.
`
