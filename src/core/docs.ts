/** A page of the documentation, for messages: whoever reads one may not have the package's files at hand. */
export const pageOf = (name: string): string => `https://github.com/waybill-js/waybill/blob/main/docs/${name}`;
