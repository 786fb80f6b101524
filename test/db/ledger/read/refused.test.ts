import t from 'tap'
import { refusedQuery, refusedSince } from '../../../../db/ledger/read/refused.ts'
import { noPause } from '../../../../db/support/pages.ts'
import { skipWithoutFile } from '../../../support/db/engine.ts'
import { fillLedger } from '../../../support/db/many-rows.ts'
import { AT, entry } from '../../../support/db/scratch-ledger.ts'
import { opened, planOf } from '../../../support/db/writer.ts'

t.test(
  'who was refused since an instant is found by the newest thousand rows of each, by an index',
  { skip: skipWithoutFile },
  async (t) => {
    const { db } = await opened(t)
    const refs = Array.from({ length: 25 }, (_, n) => `acme::bot-${n}`)
    const file = db.file ?? ''
    // The seventh was refused once; the eighth before a thousand other calls; the ninth too early.
    fillLedger(file, 1_004, (seq) => {
      const who = seq === 1 ? 9 : seq === 2 || seq > 3 ? 8 : 7
      return entry({
        at: AT + seq * 1_000,
        principal_id: `acme::bot-${who}`,
        status: seq <= 3 ? 'denied' : 'allowed',
        request_id: `req_${seq}`,
      })
    })
    t.same([...(await refusedSince(db, refs, AT + 2_000, noPause))], ['acme::bot-7'])
    t.same([...(await refusedSince(db, refs, AT + 1_000, noPause))], ['acme::bot-7', 'acme::bot-9'])
    t.same([...(await refusedSince(db, refs, AT + 3_001, noPause))], [])
    t.same([...(await refusedSince(db, [], AT, noPause))], [])
    const { sql, parameters } = refusedQuery(refs, AT).compile(db.kysely)
    const plan = planOf(file, sql, ...parameters).map(({ detail }) => detail)
    t.match(plan.join('\n'), /SEARCH .* USING INDEX \w+_principal \(principal_id=\? AND recorded_at>\?\)/)
  },
)
