import type { OperatorFacts, OperatorPlugin, OperatorTools } from '../../operator-files/module.ts'

/*
 * A check of your own, as an example: certain principals may call certain models only.
 *
 * To use it, write plugins/config/35-allow-models.yaml, whose number puts it between 30-capability.yaml and
 * 40-audit.yaml, and run `make check-config`:
 *
 *     plugin: ./examples/allow-models.ts
 *     models:
 *       acme::intern: [gpt-4o-mini, claude-haiku-4-5]
 *
 * To write one: export a function `plugin` that takes the rest of the yaml file and our tools (`Refusal`),
 * and returns a name, the facts it needs (principal, proof, demand, call, granted) and `admit`. Throw a
 * Refusal to refuse; returning lets the call go on to the next check. A check can only refuse: what it
 * returns is ignored. It has a second to decide; being slower, or throwing anything else, refuses the call
 * with plugin_failed. It gets copies, so nothing it changes reaches the gateway, and it never sees headers or
 * bodies. It runs inside the gateway, with its rights: install only code that you trust.
 *
 * To count what calls cost, return `settled(facts, outcome)` too: it is called once when a call that `admit`
 * let through has ended, with the same facts and with `{ at, status, provider, detail }`; the status is
 * success, error, truncated or refused, and `detail` holds what the ledger's outcome row says, such as the
 * tokens. Nobody waits for it.
 */

/** Refuses with `policy_denied` if a listed principal calls a model that is not on its list. */
export function plugin(
  options: Readonly<Record<string, unknown>>,
  { Refusal }: OperatorTools,
): OperatorPlugin {
  const models = readModels(options)
  return {
    name: 'allow-models',
    needs: ['principal', 'call'],
    admit: ({ principal, call }: OperatorFacts) => {
      const allowed = principal && models.get(principal.id)
      if (!allowed || (call?.model && allowed.includes(call.model))) return
      throw new Refusal('policy_denied', {
        message: `${principal.id} may not call the model ${call?.model ?? '(none)'}. Ask an operator.`,
      })
    },
  }
}

// Throwing here stops the boot, or leaves the old configuration in force on a reload.
function readModels({
  models,
  ...rest
}: Readonly<Record<string, unknown>>): ReadonlyMap<string, readonly string[]> {
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined) throw new Error(`unknown key ${unknown}: only models is known`)
  if (typeof models !== 'object' || models === null)
    throw new Error('models must map a principal to its models')
  return new Map(
    Object.entries(models).map(([principal, names]) => {
      if (!Array.isArray(names)) throw new Error(`models of ${principal} must be a list`)
      return [principal, names.map(String)]
    }),
  )
}
