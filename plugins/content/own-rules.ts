import type { rules } from '@secretlint/secretlint-rule-preset-recommend'

/** A rule in the form of the preset's. */
export type SecretRuleCreator = (typeof rules)[number]

/** Makes a rule of one pattern. */
const patternRule = (name: string, pattern: RegExp): SecretRuleCreator => {
  const messages = { [name]: { en: () => `found ${name}` } }
  return {
    messages,
    meta: {
      id: `sallyport-rule-${name}`,
      recommended: true,
      type: 'scanner',
      supportedContentTypes: ['text'],
    },
    create: (context) => {
      const t = context.createTranslator(messages)
      return {
        file: ({ content }) => {
          for (const { index, 0: found } of content.matchAll(pattern))
            context.report({ message: t(name), range: [index, index + found.length] })
        },
      }
    },
  }
}

/** Keys of Google, secrets of Stripe's webhooks, and signed JWTs, which the preset does not find. */
export const OWN_PATTERNS = {
  GOOGLE_API_KEY: /(?<!\p{L})AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])/gu,
  STRIPE_WEBHOOK_SECRET: /(?<!\p{L})whsec_[A-Za-z0-9+/]{32,99}={0,2}(?![A-Za-z0-9+/=])/gu,
  // Header and claims are objects; without a signature it proves nothing (RFC 7515 §7.1).
  JSON_WEB_TOKEN:
    /(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,1024}\.eyJ[A-Za-z0-9_-]{10,3000}\.[A-Za-z0-9_-]{32,700}(?![A-Za-z0-9_-])/gu,
}

export const OWN_RULES: readonly SecretRuleCreator[] = Object.entries(OWN_PATTERNS).map(([name, pattern]) =>
  patternRule(name, pattern),
)
