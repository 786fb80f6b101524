import t from 'tap'
import { expiringPins } from '../../../db/principals/ending.ts'
import { insertPin } from '../../../db/principals/pins.ts'
import { countKeyless } from '../../../db/principals/read.ts'
import { insertPrincipal, setActive, touchLastSeen } from '../../../db/principals/write.ts'
import type { EnrollmentMethod, PrincipalType } from '../../../db/schema.ts'
import { opened } from '../../support/db/writer.ts'

const AT = Date.UTC(2026, 0, 1)
const DAY_MS = 86_400_000

t.test(
  'certificates of who is in service that end are found, the earliest first, and no SVID that was followed by another',
  async (t) => {
    const { db, run } = await opened(t)
    let pins = 0
    const enroll = async (
      type: PrincipalType,
      name: string,
      days: number,
      enrollmentMethod: EnrollmentMethod = 'minted',
      dpopJkt: string | null = null,
    ): Promise<void> => {
      const of = { type, id: `acme::${name}`, ref: `acme::${name}`, name, displayName: null, at: AT }
      const rest = { capabilities: [], enrollmentMethod, spiffeId: null, dpopJkt, federated: false }
      pins += 1
      await run(
        insertPrincipal(db, { ...of, ...rest }),
        insertPin(db, {
          ...{ type, id: of.id, at: AT, thumbprint: String(pins).padStart(64, '0') },
          ...{ notBefore: AT, notAfter: AT + days * DAY_MS },
        }),
      )
    }
    await enroll('agent', 'later', 20)
    await enroll('user', 'ada', 10)
    await enroll('agent', 'far', 60, 'minted', 'jkt')
    await enroll('agent', 'svid', 1, 'spiffe')
    await enroll('agent', 'rotated', 2, 'spiffe')
    await enroll('agent', 'gone', 3)
    await run(setActive(db, { type: 'agent', id: 'acme::gone', active: false, revision: 1, at: AT }))
    const names = async () => (await expiringPins(db, AT + 30 * DAY_MS, 10)).map(({ name }) => name)
    t.same(await names(), ['svid', 'rotated', 'ada', 'later'])
    await run(touchLastSeen(db, { type: 'agent', id: 'acme::rotated', at: AT + 2 * DAY_MS }))
    await run(touchLastSeen(db, { type: 'agent', id: 'acme::later', at: AT + 25 * DAY_MS }))
    t.same(await names(), ['svid', 'ada', 'later'], 'any other certificate has no successor that nobody pins')
    t.equal((await expiringPins(db, AT + 30 * DAY_MS, 2)).length, 2)
    t.equal(await countKeyless(db, 'agent', 100), 3, 'of agents in service')
    t.equal(await countKeyless(db, 'agent', 2), 2)
    t.equal(await countKeyless(db, 'workload', 100), 0)
  },
)
