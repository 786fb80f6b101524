import { z } from 'zod'
import type { PrincipalLabels } from '../../../db/principals/read.ts'
import { walkAttached } from '../../../db/principals/sets.ts'
import { setLabels } from '../../../db/principals/write.ts'
import { isObject } from '../../../db/support/json.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { changeAuthor, commitChange } from '../operation/change.ts'
import { capabilityToGrant, type PrincipalKind } from '../operation/kinds.ts'
import { operation, readOperation } from '../operation/operation.ts'
import { idParams, LABEL_PATTERN, labelWord } from '../operation/shapes.ts'
import { withLatestPrincipal } from '../principals/authority.ts'
import { PRINCIPAL_SHAPES, principalByParams, principalOf, principalResult } from '../principals/view.ts'

const MAX_LABELS = 16

// Parsed from entries: a record of zod's drops `__proto__`, and every label is stored or refused.
const labelMap = z
  .unknown()
  .transform((value) => (isObject(value) ? Object.entries(value) : null))
  .pipe(
    z
      .array(z.tuple([labelWord, labelWord]), 'must be an object: keys and values of labels')
      .max(MAX_LABELS, `must be at most ${MAX_LABELS} labels`),
  )
  .transform((entries): PrincipalLabels => Object.fromEntries(entries))
  .meta({
    type: 'object',
    additionalProperties: { type: 'string', pattern: LABEL_PATTERN },
    maxProperties: MAX_LABELS,
  })

/**
 * PUT …/{id}/labels: replaces all labels. They let nobody do more, but searches for bulk changes go by them:
 * so whoever grants sets them.
 */
export const putLabels = (kind: PrincipalKind) =>
  operation({
    name: `set${kind.noun}Labels`,
    demands: capabilityToGrant(kind),
    action: 'labels.replaced',
    harmless: true,
    object: principalByParams(kind),
    summary: `Replaces the labels of the ${kind.type}.`,
    takes: { params: idParams, body: z.strictObject({ labels: labelMap }) },
    output: PRINCIPAL_SHAPES[kind.type],
    conditional: true,
    revised: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    example: { labels: { team: 'red' } },
    run: async (context, { params: { id }, body: { labels }, ifMatch }, caller) => {
      const { type } = kind
      await withLatestPrincipal(
        context,
        kind,
        { id, ifMatch },
        ({ principal_ref: subject, revision, labels: previous }) =>
          commitChange(context, caller, {
            action: 'labels.replaced',
            detail: {
              ...{ subject, subject_type: type },
              ...{ labels: inRow(type, labels), previous: inRow(type, previous) },
            },
            statements: [
              setLabels(context.database, { type, id, revision, labels, ...changeAuthor(caller) }),
            ],
          }),
      )
      return principalResult(kind, await principalOf(context, kind, id))
    },
  })

/** A row outlives a person who is erased, and holds no text about one: the keys alone. */
const inRow = (type: PrincipalKind['type'], labels: PrincipalLabels) =>
  type === 'user' ? Object.keys(labels) : { ...labels }

const labelCount = z.strictObject({
  key: z.string(),
  value: z.string(),
  principals: z.record(z.string(), z.int()).meta({ description: 'How many have it, by type.' }),
})

const MAX_SHOWN = 1_000

export const listLabels = readOperation({
  name: 'listLabels',
  summary: 'Lists the labels, with how many principals have each.',
  takes: {},
  output: z.strictObject({
    labels: z.array(labelCount).meta({ maxItems: MAX_SHOWN }),
    truncated: z.boolean(),
  }),
  run: async ({ database }) => {
    const counts = new Map<string, Record<string, number>>()
    await walkAttached(database, eventLoopTurn, ({ type, labels }) => {
      for (const [key, value] of Object.entries(labels)) {
        const label = `${key}=${value}`
        const count = counts.get(label) ?? {}
        count[type] = (count[type] ?? 0) + 1
        counts.set(label, count)
      }
    })
    const names = [...counts.keys()].toSorted()
    const labels = names.slice(0, MAX_SHOWN).map((label) => {
      const [key = '', value = ''] = label.split('=')
      return { key, value, principals: counts.get(label) ?? {} }
    })
    return { value: { labels, truncated: names.length > MAX_SHOWN } }
  },
})
