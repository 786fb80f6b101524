import t from 'tap'
import { changedAgents, markPushed } from '../../../db/principals/federation.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import { insertPrincipal, setActive, setCapabilities } from '../../../db/principals/write.ts'
import { type Opened, opened } from '../../support/db/writer.ts'

const AT = Date.UTC(2026, 0, 1)
const ALL = { after: '', limit: 100 }

async function enroll({ db, run }: Opened, name: string, federated: boolean): Promise<string> {
  const id = `acme::${name}`
  await run(
    insertPrincipal(db, {
      ...{
        type: 'agent',
        id,
        ref: id,
        name,
        displayName: null,
        capabilities: [],
        enrollmentMethod: 'minted',
      },
      ...{ spiffeId: null, dpopJkt: null, federated, at: AT },
    }),
  )
  return id
}

t.test('§3 a federated agent is to be pushed from its creation on, another never', async (t) => {
  const opening = await opened(t)
  const id = await enroll(opening, 'far', true)
  const near = await enroll(opening, 'near', false)
  await opening.run(setActive(opening.db, { type: 'agent', id: near, active: false, at: AT }))
  t.strictSame(await changedAgents(opening.db, ALL), [{ agent_id: id, federation_revision: 1 }])
})

t.test('§3 an agent is to be pushed again after each change, and after none where it was', async (t) => {
  const opening = await opened(t)
  const { db, run } = opening
  const id = await enroll(opening, 'far', true)
  await run(markPushed(db, { id, revision: 1 }))
  t.strictSame(await changedAgents(db, ALL), [])
  await run(setCapabilities(db, { type: 'agent', id, revision: 1, capabilities: ['llm.chat'], at: AT }))
  t.strictSame(await changedAgents(db, ALL), [{ agent_id: id, federation_revision: 2 }])
  await run(markPushed(db, { id, revision: 2 }), setActive(db, { type: 'agent', id, active: false, at: AT }))
  t.strictSame(await changedAgents(db, ALL), [{ agent_id: id, federation_revision: 3 }])
})

t.test('§3 the mark of what was pushed never falls, and moves no revision', async (t) => {
  const opening = await opened(t)
  const { db, run } = opening
  const id = await enroll(opening, 'far', true)
  const other = await enroll(opening, 'other', true)
  const before = await findPrincipal(db, 'agent', id)
  const marks = [3, 2, 3, 4].map((revision) => markPushed(db, { id, revision }))
  t.strictSame(await run(...marks), [1, 0, 0, 1])
  t.notOk(
    marks.some((mark) => 'changes' in mark),
    'a late mark must not fail its unit',
  )
  const marked = db.kysely.selectFrom('internal_agents').select(['agent_id', 'last_pushed_revision'])
  t.strictSame(await marked.orderBy('agent_id').execute(), [
    { agent_id: id, last_pushed_revision: 4 },
    { agent_id: other, last_pushed_revision: 0 },
  ])
  t.strictSame(await findPrincipal(db, 'agent', id), before)
})

t.test('the agents to push are read page by page, each once', async (t) => {
  const opening = await opened(t)
  const ids: string[] = []
  for (const name of ['a', 'b', 'c', 'd', 'e']) ids.push(await enroll(opening, name, true))
  const page = async (after: string) =>
    (await changedAgents(opening.db, { after, limit: 2 })).map(({ agent_id }) => agent_id)
  t.strictSame(await page(''), ids.slice(0, 2))
  t.strictSame(await page('acme::b'), ids.slice(2, 4))
  t.strictSame(await page('acme::d'), ids.slice(4))
  t.strictSame(await page('acme::e'), [])
})
