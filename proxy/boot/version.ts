import manifest from '#manifest' with { type: 'json' }

/** The version of this service, as package.json has it: stands in every audit row. */
export const VERSION: string = manifest.version
