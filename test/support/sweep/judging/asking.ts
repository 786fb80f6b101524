import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Ran } from '../../run.ts'
import type { Case } from '../edits/edit.ts'
import type { Verdicts } from './judges.ts'

/** Says what is wrong with the verdicts on a case, as a sentence; null where both verifiers are right. */
export type Ask = (what: Case) => Promise<string | null>

/** Makes the function that has both verifiers judge a case, by files in a directory. */
export function asking(directory: string, both: (args: readonly string[]) => Promise<Verdicts>): Ask {
  const path = (name: string, content: string | Buffer): string => {
    const file = join(directory, name)
    writeFileSync(file, content)
    return file
  }
  return async ({ file, keys = [], witnesses = [], kept, body, code }) => {
    const args = [path('case', file), '--authority']
    if (keys.length > 0) args.push('--key', path('keys', keys.join('\n')))
    if (witnesses.length > 0) args.push('--witness', path('witnesses', witnesses.join('\n')))
    if (kept !== undefined) args.push('--checkpoint', path('kept', kept))
    if (body !== undefined) args.push('--body', path('body', body))
    const { ours, theirs } = await both(args)
    const wrong = [
      wrongIn('ours', ours, code),
      theirs && wrongIn('theirs', theirs, code),
      theirs && differenceOf(ours, theirs),
    ]
    return wrong.find((sentence) => sentence !== null) ?? null
  }
}

function wrongIn(whose: string, { code, out, err }: Ran, right: number): string | null {
  if (code !== right)
    return `${whose} says ${code}, and ${right} is right: ${out.slice(0, 600)}${err.slice(-1_500)}`
  if (right !== 0 && `${out}${err}`.trim() === '') return `${whose} says ${code} and not why`
  return /\n\s+at |Traceback/.test(err) ? `${whose} shows a stack trace: ${err.slice(0, 1_500)}` : null
}

/** Where both say the same code, they must name the same row, and come to the same conclusion. */
function differenceOf(ours: Ran, theirs: Ran): string | null {
  const [one, other] = [namedIn(ours), namedIn(theirs)]
  return one === other ? null : `ours names ${one}, theirs ${other}`
}

const namedIn = ({ code, out }: Ran): string => {
  if (code === 0) return out.trimEnd().split('\n').at(-1) ?? ''
  return code === 2 ? (/^BAD: row (\S+)/m.exec(out)?.[1] ?? 'no row') : 'nothing'
}
