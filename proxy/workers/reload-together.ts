import { messageOf } from '../../db/support/error-message.ts'
import type { Member } from './member.ts'
import type { Share } from './messages.ts'

interface Reloading {
  readonly members: readonly Member[]
  /** Which of them logs and counts it, and on a stream that all share writes the row. */
  readonly leader: Member | undefined
  readonly sharedStream: boolean
}

/**
 * Has all workers reload, or none: each reads and checks the files, the row is written, and only then they swap. One
 * that dies meanwhile has no say. Resolves with the digest that is in force now; rejects where all is as before.
 */
export async function reloadTogether({ members, leader, sharedStream }: Reloading): Promise<string> {
  const shareOf = (member: Member): Share => ({
    reports: member === leader,
    records: member === leader || !sharedStream,
  })
  try {
    const digests = await ofLiving(members, ({ channel }) => channel.ask('load', null))
    const [digest = '', ...others] = new Set(digests)
    if (others.length > 0) throw new Error('the files were changed while they were read: reload once more')
    const recording = members.filter((member) => shareOf(member).records)
    await ofLiving(recording, ({ channel }) => channel.ask('record', null))
    await ofLiving(members, (member) => member.channel.ask('swap', shareOf(member)))
    return digest
  } catch (error) {
    const problem = messageOf(error)
    await ofLiving(members, (member) => member.channel.ask('reject', { problem, ...shareOf(member) }))
    throw error
  }
}

/** Asks all at once. Rejects with the first problem once all have answered; who has ended has no problem. */
async function ofLiving<Answer>(
  members: readonly Member[],
  ask: (member: Member) => Promise<Answer>,
): Promise<readonly Answer[]> {
  const answers = await Promise.allSettled(members.map(ask))
  const living = answers.filter((_, place) => !members[place]?.dead)
  for (const answer of living) if (answer.status === 'rejected') throw answer.reason
  return living.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
}
